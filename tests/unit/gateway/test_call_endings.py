"""Calls that do not end well: what the client is told, and how the step is marked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine, sse_bytes, stream_chunks

STREAM = {**HI, "stream": True}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, upstream_timeout_ms=500) as gateway:
        await gateway.register()
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
async def test_upstream_down_is_502(stream: bool) -> None:
    async with running_gateway("http://127.0.0.1:9/v1") as gateway:
        await gateway.register()
        status, reply = await gateway.chat({**HI, "model": "m", "stream": stream})
        assert status == 502
        assert reply["error"]["code"] == "upstream_unreachable"
        assert "AGENTWORLD_GATEWAY_UPSTREAM_URL" in reply["error"]["message"]
        (step,) = gateway.steps
    assert step.status == "failed"
    assert step.error is not None
    assert step.error.http_status == 502
    assert step.token_source == "none"
    assert not step.trainable
    assert step.prompt.append_messages


@pytest.mark.parametrize("stream", [False, True])
async def test_a_silent_engine_is_504(gateway: RunningGateway, engine: ScriptedEngine, stream: bool) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    engine.script = script
    status, reply = await gateway.chat({**HI, "stream": stream})
    assert status == 504
    assert reply["error"]["code"] == "upstream_timeout"
    assert gateway.steps[0].status == "timed_out"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (429, {"error": {"message": "slow down", "type": "rate_limit_error", "code": "busy"}}, "slow down"),
        (400, {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long"),
        (404, {"detail": "no such model"}, "no such model"),
        (500, "not json", "the engine answered 500"),
        (302, "", "the engine answered 302"),
    ],
)
async def test_the_engines_errors_are_passed_on(
    gateway: RunningGateway, engine: ScriptedEngine, status: int, body: Any, message: str
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        headers = {"Retry-After": "7"}
        if isinstance(body, str):
            return web.Response(text=body, status=status, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    engine.script = script
    async with gateway.http.post(f"{gateway.url}/t1/p1/v1/chat/completions", json=HI) as response:
        reply = await response.json()
        assert response.status == (status if status >= 400 else 502)
        assert response.headers["Retry-After"] == "7"
    assert reply["error"]["message"] == message
    assert set(reply["error"]) == {"message", "type", "code", "param"}
    (step,) = gateway.steps
    assert step.status == "failed"
    assert step.error is not None
    assert step.error.message == message


@pytest.mark.parametrize(
    "payload", [b"<html>", b"{}", b'{"choices": 5}', b'{"choices": [{"token_ids": [-1]}]}']
)
async def test_an_answer_that_is_no_completion_is_502_and_malformed(
    gateway: RunningGateway, engine: ScriptedEngine, payload: bytes
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.Response(body=payload, content_type="application/json")

    engine.script = script
    status, reply = await gateway.chat()
    assert status == 502
    assert reply["error"]["code"] == "upstream_malformed"
    assert gateway.steps[0].status == "malformed"


async def cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return response


def error_chunk(response: web.StreamResponse) -> bytes:
    return b'data: {"error": {"message": "out of memory", "code": 500}}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("how", ["cut", "error", "early end", "garbage"])
async def test_a_stream_that_breaks_midway_ends_in_an_error_event(
    gateway: RunningGateway, engine: ScriptedEngine, how: str
) -> None:
    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse_bytes(stream_chunks()[:3], done=False))
        if how == "cut":
            return await cut(request, response)
        tail = {"error": error_chunk(response), "early end": b"", "garbage": b"data: {x\n\n"}[how]
        await response.write(tail)
        return response

    engine.script = script
    status, text = await gateway.chat_text(STREAM)
    assert status == 200
    assert "Hel" in text
    assert "[DONE]" not in text
    assert text.rstrip().rsplit("\n", 1)[-1].startswith('data: {"error":{"message":')
    (step,) = gateway.steps
    assert step.status == ("malformed" if how == "garbage" else "failed")
    assert step.response_ids == [10, 11]
    assert not step.trainable


async def test_a_stream_that_goes_silent_is_timed_out(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse_bytes(stream_chunks()[:2], done=False))
        await asyncio.sleep(60)
        return response

    engine.script = script
    _, text = await gateway.chat_text(STREAM)
    assert '"code":"upstream_timeout"' in text
    assert gateway.steps[0].status == "timed_out"


LEFT: dict[str, dict[str, Any]] = {
    "chat/completions": HI,
    "responses": {"input": "hi"},
    "messages": {**HI, "max_tokens": 9},
}


@pytest.mark.parametrize("path", LEFT)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_the_engine_and_the_step_says_so(
    gateway: RunningGateway, engine: ScriptedEngine, stream: bool, path: str
) -> None:
    asked = asyncio.Event()

    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if body.get("stream"):
            await response.prepare(request)
            await response.write(sse_bytes(stream_chunks()[:3], done=False))
        asked.set()
        for _ in range(600):
            await asyncio.sleep(0.1)
            if body.get("stream"):
                await response.write(b": alive\n\n")
        return response

    engine.script = script
    body = {**LEFT[path], "stream": stream}

    async def client() -> None:
        async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=body) as response:
            await response.read()

    call = asyncio.create_task(client())
    await asked.wait()
    await asyncio.sleep(0.1)
    call.cancel()
    (step,) = await gateway.until_steps(1)
    assert step.status == "cancelled"
    assert step.error is not None
    assert step.error.code == "client_gone"
    assert step.response_ids == ([10, 11] if stream else [])
    assert not step.trainable
    async with asyncio.timeout(20):
        await engine.cancelled.wait()


async def test_a_stream_without_done_that_is_complete_is_ok(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        return await engine.stream(request, [sse_bytes(stream_chunks(), done=False)])

    engine.script = script
    _, text = await gateway.chat_text(STREAM)
    assert text.endswith("[DONE]\n\n")
    assert gateway.steps[0].status == "ok"


async def test_the_next_step_never_builds_on_a_failed_one(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.Response(status=500)

    engine.script = script
    await gateway.chat()
    engine.script = None
    await gateway.chat()
    assert [step.prompt.base_step_id for step in gateway.steps] == [None, None]
