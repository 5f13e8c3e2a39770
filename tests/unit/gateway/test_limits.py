"""Limits: calls per key, heads, answers, clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gateway.client_reply import ClientReply, Pace
from tests.unit.gateway.harness import HI, running_gateway
from tests.unit.gateway.scripted_engine import (
    ScriptedEngine,
    reply_body,
    running_engine,
    sse_bytes,
    stream_chunks,
)

STREAM = {**HI, "stream": True}
MiB = 1024 * 1024


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


async def test_a_key_has_so_many_calls_under_way_and_no_more(engine: ScriptedEngine) -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        begun.release()
        await go_on.wait()
        return web.json_response(reply_body())

    engine.script = script
    async with running_gateway(engine.url, max_calls_per_key=2) as gateway:
        await gateway.register()
        mine = {"Authorization": "Bearer mine"}
        calls = [asyncio.create_task(gateway.chat(headers=mine)) for _ in range(2)]
        for _ in calls:
            await begun.acquire()
        url = f"{gateway.url}/t1/p1/v1"
        async with gateway.http.post(f"{url}/chat/completions", json=HI, headers=mine) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "1"
            assert (await response.json())["error"]["code"] == "too_many_calls"
        async with gateway.http.post(f"{url}/messages", json=HI, headers={"x-api-key": "mine"}) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (429, "rate_limit_error")
        other = asyncio.create_task(gateway.chat(headers={"x-api-key": "other"}))
        await begun.acquire()
        go_on.set()
        assert [status for status, _ in await asyncio.gather(*calls, other)] == [200, 200, 200]
        assert (await gateway.chat(headers=mine))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_beyond_the_limit_is_cut_off_and_says_so(
    engine: ScriptedEngine, stream: bool
) -> None:
    async with running_gateway(engine.url, max_answer_bytes=500) as gateway:
        await gateway.register()
        _, text = await gateway.chat_text({**HI, "stream": stream})
        assert "answer_too_large" in text
        assert "[DONE]" not in text
        assert gateway.steps[0].status == "failed"


async def test_a_client_that_does_not_read_holds_the_engine_up_and_not_the_memory(
    engine: ScriptedEngine,
) -> None:
    written = 0
    chunk = json.loads(json.dumps(stream_chunks()[1]))
    chunk["choices"][0]["delta"]["content"] = "x" * 60_000

    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(1000):
            await response.write(sse_bytes([chunk], done=False))
            written += 60_000
        return response

    engine.script = script
    async with running_gateway(engine.url) as gateway:
        await gateway.register()
        host, port = gateway.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        body = json.dumps(STREAM).encode()
        head = f"POST /t1/p1/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        before = -1
        async with asyncio.timeout(30):
            while written == 0 or written != before:
                before = written
                await asyncio.sleep(0.3)
        assert written < 30 * MiB, "the engine was read faster than the client"
        writer.transport.abort()
        (step,) = await gateway.until_steps(1)
        assert step.status == "cancelled"


async def test_a_client_that_reads_nothing_for_too_long_is_let_go() -> None:
    stuck = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.Event().wait()

    reply = ClientReply(send, [], Pace(first_keepalive_s=60, keepalive_s=60, stall_s=0.2))

    async def write() -> None:
        await reply.write(b"data: 1\n\n")

    writer = asyncio.create_task(write())
    beside = asyncio.create_task(reply.keep_alive(lambda: b": alive\n\n", writer))
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await writer
        assert reply.stalled
        await reply.end(b"data: [DONE]\n\n")
        await beside


@pytest.mark.parametrize("head", ["GET / HTTP/1.1\r\nx: ", "GET /", "x" * 10])
async def test_a_head_that_never_ends_is_431_or_400(engine: ScriptedEngine, head: str) -> None:
    async with running_gateway(engine.url, max_header_bytes=4096) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                writer.write(b"a" * 1000)
                await writer.drain()
        async with asyncio.timeout(20):
            reply = await reader.readuntil(b"\r\n")
        assert reply.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        writer.close()


async def test_every_chat_event_is_one_line_to_every_client(engine: ScriptedEngine) -> None:
    odd = "a\u0085b\u2028c\u2029d\u00e9"

    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        chunks = stream_chunks()
        chunks[1]["choices"][0]["delta"]["content"] = odd
        raw = b"".join(b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\n\n" for c in chunks)
        return await engine.stream(request, [raw + b"data: [DONE]\n\n"])

    engine.script = script
    bodies = {"chat/completions": STREAM, "responses": {"input": "x", "stream": True}, "messages": STREAM}
    async with running_gateway(engine.url) as gateway:
        await gateway.register()
        for path, body in bodies.items():
            async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=body) as response:
                text = await response.text()
            lines = [line for line in text.splitlines() if line]
            assert all(line.startswith(("data: ", "event: ")) for line in lines), path
            data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            assert any(odd in json.dumps(event, ensure_ascii=False) for event in data), path
