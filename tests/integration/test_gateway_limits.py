"""`python -m gateway` on its own: clients that do not read, secrets, and stops that cannot wait."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentworld.platform.settings import KafkaSettings
from gateway.frames import read_frames
from infra.local.ports import free_port
from tests.support.gateway_process import HI, GatewayProcess
from tests.unit.gateway.scripted_engine import (
    ScriptedEngine,
    reply_body,
    running_engine,
    sse_bytes,
    stream_chunks,
)

pytestmark = pytest.mark.timeout(300)

MiB = 1024 * 1024
SECRET, RUNNER = "secret-that-signs-tokens", "runner-key-0123456789"
AGENT, ENGINE = "agent-key-0123456789", "engine-key-0123456789"


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


async def gateway_alone(engine: ScriptedEngine, folder: Path, **settings: Any) -> GatewayProcess:
    """Without a broker: what is captured lies in the spool."""
    kafka = KafkaSettings(bootstrap=f"127.0.0.1:{free_port()}", partitions=4)
    return await GatewayProcess(kafka, engine.url, folder / "spool", ack_timeout_ms=100, **settings).start()


def spooled(folder: Path) -> list[Any]:
    """Every event in the spool."""
    events = []
    for path in sorted((folder / "spool").glob("*/pending-*.log")):
        with path.open("rb") as file:
            events += [json.loads(record.value) for record, _ in read_frames(file)]
    return events


def steps(folder: Path) -> list[Any]:
    return [event for event in spooled(folder) if event["type"] == "step_captured"]


def chunk(text: str) -> bytes:
    parts = json.loads(json.dumps(stream_chunks()[1]))
    parts["choices"][0]["delta"]["content"] = text
    return sse_bytes([parts], done=False)


async def unread(url: str, path: str, body: dict[str, Any]) -> socket.socket:
    """A call whose reply nobody reads."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (host, int(port)))
    data = json.dumps(body).encode()
    await loop.sock_sendall(
        client, f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    )
    return client


async def test_clients_that_read_nothing_cost_no_memory_however_much_the_engine_has_to_say(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    written = 0
    part = chunk("x" * 60_000)

    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(50 * MiB // len(part)):
            await response.write(part)
            written += len(part)
        return response

    gateway = await gateway_alone(engine, tmp_path)
    await gateway.register("t1")
    await gateway.chat("t1")
    engine.script = script
    before = gateway.rss_bytes()
    clients = [
        await unread(gateway.url, "/t1/p1/v1/chat/completions", {**HI, "stream": True}) for _ in range(4)
    ]
    seen = -1
    async with asyncio.timeout(120):
        while not written or written != seen:
            seen = written
            await asyncio.sleep(1)
    assert written < 4 * 25 * MiB, "the engine was read faster than the clients"
    grown = gateway.rss_bytes() - before
    assert grown < 60 * MiB, f"{grown} bytes for {written} written"
    for client in clients:
        client.close()
    async with asyncio.timeout(30):
        while len(steps(tmp_path)) < 5:
            await asyncio.sleep(0.1)
    assert [step["status"] for step in steps(tmp_path)] == ["ok"] + ["cancelled"] * 4
    assert await gateway.stop() == 0


async def test_calls_that_outlast_the_drain_are_stopped_told_and_captured(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            await asyncio.sleep(600)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse_bytes(stream_chunks()[:3], done=False))
        await asyncio.sleep(600)
        return response

    engine.script = script
    gateway = await gateway_alone(engine, tmp_path, drain_timeout_ms=500)
    await gateway.register("t1")
    assert gateway.http is not None
    url = f"{gateway.url}/t1/p1/v1/chat/completions"
    whole = asyncio.create_task(gateway.post("/t1/p1/v1/chat/completions", HI))
    async with gateway.http.post(url, json={**HI, "stream": True}) as streamed:
        seen = await streamed.content.readuntil(b"lo ")
        while len(engine.requests) < 2:
            await asyncio.sleep(0.05)
        gateway.terminate()
        rest = await streamed.text()
    assert b"Hel" in seen
    assert "gateway_stopping" in rest
    assert "[DONE]" not in rest
    status, reply = await whole
    assert (status, reply["error"]["code"]) == (503, "gateway_stopping")
    assert await gateway.stop() == 0
    captured = steps(tmp_path)
    assert [step["status"] for step in captured] == ["cancelled", "cancelled"]
    assert sorted(len(step["response_ids"]) for step in captured) == [0, 2]
    assert {step["error"]["code"] for step in captured} == {"gateway_stopping"}


@pytest.mark.parametrize("own_key", [False, True])
async def test_no_secret_is_in_logs_events_or_metrics(
    engine: ScriptedEngine, tmp_path: Path, own_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tells_all(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        said = f"bad key {request.headers.get('Authorization')}"
        status = {"tell": 401, "fail": 500}.get(body["model"], 200)
        if body["model"] == "garble":
            return web.Response(text=f"<html>{said}", content_type="application/json")
        if status != 200:
            return web.json_response({"error": {"message": said}}, status=status)
        if body.get("stream"):
            return await engine.stream(request, [sse_bytes(stream_chunks())])
        return web.json_response(reply_body())

    monkeypatch.setenv("AGENTWORLD_LOG_LEVEL", "DEBUG")
    engine.script = tells_all
    settings: dict[str, Any] = {"auth_secret": SECRET, "auth_keys": json.dumps([RUNNER])}
    if own_key:
        settings["upstream_api_key"] = ENGINE
    gateway = await gateway_alone(engine, tmp_path, **settings)
    assert gateway.http is not None
    runner, agent = {"Authorization": f"Bearer {RUNNER}"}, {"Authorization": f"Bearer {AGENT}"}
    async with gateway.http.post(f"{gateway.url}/init_trajectory", headers=runner) as response:
        uid = (await response.json())["trajectory_uid"]
    token = uid.rpartition("~")[2]
    at = f"{gateway.url}/{uid}/p1/v1"
    bodies: list[tuple[str, Any]] = [
        ("register_trajectory", {}),
        ("chat/completions", {**HI, "api_key": AGENT, "extra": {"headers": {"Authorization": AGENT}}}),
        ("chat/completions", {**HI, "stream": True}),
        ("chat/completions", {**HI, "model": "tell"}),
        ("chat/completions", {**HI, "model": "fail"}),
        ("chat/completions", {**HI, "model": "garble"}),
        ("chat/completions", {"messages": 5}),
        ("responses", {"input": "hi", "model": "tiny", "api_key": AGENT}),
        ("messages", {**HI, "max_tokens": 9}),
        ("messages/count_tokens", HI),
        ("completions", {"prompt": "hi", "api_key": AGENT}),
        ("nothing/here", {}),
        ("reward", {"value": "x"}),
        ("fail_trajectory", {"reason": f"GET {at}/models"}),
    ]
    for path, body in bodies:
        for headers in (agent, {"x-api-key": AGENT}, runner):
            async with gateway.http.post(f"{at}/{path}", json=body, headers=headers) as response:
                told = await response.text()
            assert not own_key or ENGINE not in told
    for wrong in (uid[:-1] + "x", "t1"):
        async with gateway.http.post(f"{gateway.url}/{wrong}/p1/v1/chat/completions", json=HI) as response:
            assert response.status == 401
    async with gateway.http.get(f"{gateway.url}/metrics", headers=runner) as response:
        metrics = await response.text()
    assert await gateway.stop() == 0
    assert len(steps(tmp_path)) >= 3 * 7
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = {str(path): path.read_text(errors="replace") for path in written} | {"metrics": metrics}
    assert "listening on" in texts[str(tmp_path / "spool-gateway.log")]
    for secret in (SECRET, RUNNER, AGENT, ENGINE, token):
        assert not [where for where, text in texts.items() if secret in text], secret
