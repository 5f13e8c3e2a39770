"""A stream is kept alive while the engine is silent, and opened only when there is something to say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine, sse_bytes, stream_chunks

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {**HI, "stream": True},
    "responses": {"input": "hi", "stream": True},
    "messages": {**HI, "stream": True, "max_tokens": 9},
}
ALIVE = {"chat/completions": ": keep-alive", "responses": "event: keepalive", "messages": "event: ping"}
END = {"chat/completions": "data: [DONE]", "responses": "response.completed", "messages": "message_stop"}
EVERY = pytest.mark.parametrize("path", BODIES)


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, keepalive_ms=100) as gateway:
        await gateway.register()
        yield gateway


async def until(text: str, response: Any) -> str:
    seen = ""
    async with asyncio.timeout(20):
        while text not in seen:
            part = (await response.content.readany()).decode()
            assert part, seen
            seen += part
    return seen


@EVERY
async def test_headers_and_keepalives_go_out_while_the_engine_has_not_answered(
    gateway: RunningGateway, engine: ScriptedEngine, path: str
) -> None:
    client_waits = asyncio.Event()

    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        await client_waits.wait()
        return await engine.stream(request, [sse_bytes(stream_chunks())])

    engine.script = script
    async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=BODIES[path]) as response:
        assert response.status == 200
        seen = await until(ALIVE[path], response)
        assert "Hel" not in seen
        client_waits.set()
        rest = await response.text()
    assert END[path] in rest
    assert gateway.steps[0].status == "ok"


@EVERY
async def test_keepalives_go_out_between_chunks(
    gateway: RunningGateway, engine: ScriptedEngine, path: str
) -> None:
    client_has_it = asyncio.Event()

    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse_bytes(stream_chunks()[:2], done=False))
        await client_has_it.wait()
        await response.write(sse_bytes(stream_chunks()[2:]))
        return response

    engine.script = script
    async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=BODIES[path]) as response:
        await until("Hel", response)
        await until(ALIVE[path], response)
        client_has_it.set()
        rest = await response.text()
    assert END[path] in rest
    if path == "responses":
        kinds = [line for line in rest.splitlines() if line.startswith("event:")]
        assert "event: response.created" not in kinds, "the response had begun before"


@EVERY
async def test_a_failure_after_a_keepalive_is_told_within_the_stream(
    gateway: RunningGateway, engine: ScriptedEngine, path: str
) -> None:
    client_waits = asyncio.Event()

    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        await client_waits.wait()
        return web.json_response({"error": {"message": "busy now", "code": "busy"}}, status=429)

    engine.script = script
    async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=BODIES[path]) as response:
        await until(ALIVE[path], response)
        client_waits.set()
        rest = await response.text()
    assert "busy now" in rest
    assert END[path] not in rest
    assert gateway.steps[0].status == "failed"


@EVERY
async def test_a_status_that_comes_before_the_first_keepalive_is_the_status(
    engine: ScriptedEngine, path: str
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "busy now"}}, status=429, headers={"Retry-After": "3"})

    engine.script = script
    async with running_gateway(engine.url) as gateway:
        await gateway.register()
        async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=BODIES[path]) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "3"
            assert "busy now" in json.dumps(await response.json())


async def test_the_first_keepalive_may_come_sooner_than_the_others(engine: ScriptedEngine) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    engine.script = script
    async with running_gateway(engine.url, first_keepalive_ms=100) as gateway:
        await gateway.register()
        async with gateway.http.post(f"{gateway.url}/t1/p1/v1/messages", json=BODIES["messages"]) as response:
            assert await until("event: ping", response) == 'event: ping\ndata: {"type":"ping"}\n\n'
