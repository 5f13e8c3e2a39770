"""Errors before a stream begins: each protocol's own shape, with the right status; and no WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from gateway.heads import is_upgrade, refuse_upgrade
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine

MESSAGES = {**HI, "max_tokens": 9}
BODIES: dict[str, Any] = {
    "chat/completions": HI,
    "responses": {"input": "hi"},
    "messages": MESSAGES,
    "completions": {"prompt": "hi"},
    "generate": {"prompt_ids": [1]},
    "messages/count_tokens": MESSAGES,
}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, max_body_bytes=10_000, max_header_bytes=4096) as gateway:
        await gateway.register()
        yield gateway


def assert_shape(path: str, reply: Any, code: str, kind: str) -> None:
    """`code` in OpenAI's shape, `kind` in Anthropic's."""
    if path.startswith("messages"):
        assert set(reply) == {"type", "error"}
        assert reply["type"] == "error"
        assert set(reply["error"]) == {"type", "message"}
        assert reply["error"]["type"] == kind
    else:
        assert set(reply["error"]) == {"message", "type", "code", "param"}
        assert reply["error"]["code"] == code


@pytest.mark.parametrize("path", BODIES)
async def test_errors_have_the_protocols_own_shape(gateway: RunningGateway, path: str) -> None:
    url = f"/t1/p1/v1/{path}"
    status, reply = await gateway.post(url, data=b"{")
    assert status == 400
    assert_shape(path, reply, "invalid_json", "invalid_request_error")
    status, reply = await gateway.post(url, data=b"x" * 10_001)
    assert status == 413
    assert_shape(path, reply, "body_too_large", "request_too_large")
    status, reply = await gateway.post(url, data=b"x", headers={"Content-Encoding": "br"})
    assert status == 415
    assert_shape(path, reply, "unsupported_encoding", "invalid_request_error")
    status, reply = await gateway.post(url, BODIES[path], headers={"x-long": "x" * 5000})
    assert status == 431
    assert_shape(path, reply, "headers_too_large", "invalid_request_error")
    async with gateway.http.get(gateway.url + url) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert_shape(path, await response.json(), "method_not_allowed", "invalid_request_error")
    status, reply = await gateway.post(f"/-/p1/v1/{path}", BODIES[path])
    assert status == 422
    assert_shape(path, reply, "invalid_name", "invalid_request_error")


@pytest.mark.parametrize("path", [path for path in BODIES if path != "messages/count_tokens"])
async def test_calls_of_no_open_trajectory_are_told_in_the_protocols_own_shape(
    gateway: RunningGateway, path: str
) -> None:
    status, reply = await gateway.post(f"/other/p1/v1/{path}", BODIES[path])
    assert status == 404
    assert_shape(path, reply, "unknown_trajectory", "not_found_error")
    status, reply = await gateway.post(f"/t1/p2/v1/{path}", BODIES[path])
    assert status == 409
    assert_shape(path, reply, "prompt_mismatch", "invalid_request_error")
    await gateway.post("/t1/p1/v1/complete_trajectory")
    status, reply = await gateway.post(f"/t1/p1/v1/{path}", BODIES[path])
    assert status == 409
    assert_shape(path, reply, "trajectory_completed", "invalid_request_error")


async def test_an_unknown_path_of_anthropics_has_anthropics_shape(gateway: RunningGateway) -> None:
    status, reply = await gateway.post("/t1/p1/v1/messages/batches", {})
    assert status == 404
    assert_shape("messages", reply, "", "not_found_error")
    status, reply = await gateway.post("/v1/complete", {}, headers={"anthropic-version": "2023-06-01"})
    assert status == 404
    assert_shape("messages", reply, "", "not_found_error")


async def test_the_sdks_raise_their_own_errors(gateway: RunningGateway) -> None:
    base = f"{gateway.url}/other/p1"
    async with anthropic.AsyncAnthropic(base_url=base, api_key="none", max_retries=0) as client:
        with pytest.raises(anthropic.NotFoundError, match="register_trajectory"):
            await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="register_trajectory"):
            await client.responses.create(model="m", input="x")


async def raw_reply(url: str, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the reply to bytes on a socket."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
    writer.close()
    return head, body


@pytest.mark.parametrize("path", ["/t1/p1/v1/responses", "/v1/responses", "/nothing"])
@pytest.mark.parametrize("ws", ["auto", "none"])
async def test_a_websocket_is_answered_426(engine: ScriptedEngine, path: str, ws: str) -> None:
    async with running_gateway(engine.url, server={"ws": ws}) as gateway:
        request = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        head, body = await raw_reply(gateway.url, request.encode())
    assert head.startswith(b"HTTP/1.1 426 ")
    assert b"upgrade: http/1.1" in head.lower()
    assert b"upgrade_required" in body


async def test_a_server_that_cannot_answer_a_websocket_in_http_closes_it() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "headers": [], "extensions": {}}
    assert is_upgrade(scope)
    await refuse_upgrade(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_an_engines_error_never_shows_the_clients_key(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    from aiohttp import web

    async def script(request: web.Request, _: dict[str, Any]) -> web.Response:
        said = f"wrong key: {request.headers['Authorization']}"
        return web.json_response({"error": {"message": said}}, status=401)

    engine.script = script
    for path in ("chat/completions", "messages"):
        status, reply = await gateway.post(
            f"/t1/p1/v1/{path}", BODIES[path], headers={"x-api-key": "sk-very-secret"}
        )
        assert status == 401
        assert "***" in json.dumps(reply)
    assert all(b"sk-very-secret" not in (r.value or b"") for r in gateway.log.records("trajectory-events"))


async def test_keys_in_the_body_are_not_captured(gateway: RunningGateway) -> None:
    await gateway.chat({**HI, "api_key": "sk-very-secret", "temperature": 1})
    assert gateway.steps[0].request.sampling == {"temperature": 1}
