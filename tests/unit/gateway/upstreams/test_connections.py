"""Connections to an engine are used again, also where a stream's end comes behind its `[DONE]`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.support.serving import serving
from tests.unit.gateway.harness import HI, running_gateway
from tests.unit.gateway.scripted_engine import reply_body, sse_bytes, stream_chunks


class CountingEngine:
    """Notes which connections calls came over. A stream's end waits until the client has its answer."""

    def __init__(self) -> None:
        self.peers: list[object] = []
        self.may_end = asyncio.Event()
        self.url = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peername"))
        if not (await request.json()).get("stream"):
            return web.json_response(reply_body())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse_bytes(stream_chunks()))
        await self.may_end.wait()
        await response.write_eof()
        return response


@asynccontextmanager
async def counting() -> AsyncIterator[CountingEngine]:
    engine = CountingEngine()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.chat)
    async with serving(app, handler_cancellation=True) as engine.url:
        yield engine


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_one_after_another_share_connections(stream: bool) -> None:
    async with counting() as engine, running_gateway(engine.url, upstream_model="tiny") as gateway:
        await gateway.register()
        engine.may_end.set()
        for _ in range(10):
            status, _ = await gateway.chat_text({**HI, "stream": stream})
            assert status == 200
        assert len(engine.peers) == 10
        # Usually one; a call may come before the last one's body has ended.
        assert len(set(engine.peers)) < 5


async def test_an_answer_does_not_wait_for_the_end_of_the_engines_body() -> None:
    async with counting() as engine, running_gateway(engine.url, upstream_model="tiny") as gateway:
        await gateway.register()
        async with asyncio.timeout(60):
            # The engine never ends its body here: the answer comes all the same, and so does the next.
            for _ in range(2):
                status, text = await gateway.chat_text({**HI, "stream": True})
                assert (status, text.endswith("data: [DONE]\n\n")) == (200, True)
        assert len(set(engine.peers)) == 2
