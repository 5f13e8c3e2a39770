"""Published weights and frozen models, in every protocol, streamed or not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.unit.gateway.harness import HI
from tests.unit.gateway.scripted_engine import reply_body, sse_bytes, stream_chunks
from tests.unit.gateway.upstreams.pool_engines import PoolEngine, engines, pool, published
from tests.unit.gateway.upstreams.test_gateway_with_pools import gateway_over

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": HI,
    "responses": {"input": "hi"},
    "messages": {**HI, "max_tokens": 9},
    "completions": {"prompt": "hi"},
}
ALIVE = {
    "chat/completions": ": keep-alive",
    "responses": "event: keepalive",
    "messages": "event: ping",
    "completions": ": keep-alive",
}
END = {
    "chat/completions": "data: [DONE]",
    "responses": "event: response.completed",
    "messages": "event: message_stop",
    "completions": "data: [DONE]",
}
EVERY = pytest.mark.parametrize("path", BODIES)
STREAMED_OR_NOT = pytest.mark.parametrize("stream", [False, True])


def _as_text(choice: dict[str, Any], key: str) -> dict[str, Any]:
    """A chat choice as text completions have it."""
    turn = choice.pop(key)
    content = (choice.pop("logprobs", None) or {}).get("content")
    logprobs = None if content is None else {"token_logprobs": [item["logprob"] for item in content]}
    return {**choice, "text": turn.get("content") or "", "logprobs": logprobs}


async def _answers(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    text = request.path.endswith("/v1/completions")
    if not body.get("stream"):
        reply = reply_body()
        if text:
            reply["choices"] = [_as_text(choice, "message") for choice in reply["choices"]]
        return web.json_response(reply)
    chunks = stream_chunks()
    if text:
        for chunk in chunks:
            chunk["choices"] = [_as_text(choice, "delta") for choice in chunk["choices"]]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(sse_bytes(chunks))
    return response


def answering(engine: PoolEngine) -> PoolEngine:
    engine.answers = _answers
    return engine


@EVERY
@STREAMED_OR_NOT
async def test_a_call_held_for_new_weights_is_kept_alive_and_answered_by_them(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with engines("p") as (p,):
        policy = pool("policy", answering(p), engine={"update_weights": True})
        async with gateway_over(tmp_path, policy, keepalive_ms=100) as gateway:
            p.may_load.clear()
            gateway.policies.take(published(7))
            await p.loading.wait()
            body = {**BODIES[path], "model": "policy", "stream": stream}
            asked = gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=body)
            if stream:
                async with asyncio.timeout(20), asked as response:
                    assert response.status == 200
                    seen = (await response.content.readany()).decode()
                    assert ALIVE[path] in seen
                    assert not p.asked
                    p.may_load.set()
                    text = seen + await response.text()
                assert END[path] in text
            else:
                call = asyncio.ensure_future(asked)
                await asyncio.sleep(0.3)
                assert not call.done()
                assert not p.asked
                p.may_load.set()
                async with asyncio.timeout(20), await call as response:
                    assert response.status == 200
                    text = json.dumps(await response.json())
            assert "Hel" in text
            (step,) = await gateway.until_steps(1)
    assert (step.engine.policy_version_start, step.engine.policy_version_end) == (7, 7)
    assert (step.status, step.trainable, step.token_source) == ("ok", True, "engine")


@EVERY
@STREAMED_OR_NOT
async def test_a_client_that_leaves_a_held_call_is_captured_and_the_engine_never_asked(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with engines("p") as (p,):
        policy = pool("policy", answering(p), engine={"update_weights": True})
        async with gateway_over(tmp_path, policy) as gateway:
            p.may_load.clear()
            gateway.policies.take(published(7))
            await p.loading.wait()
            body = {**BODIES[path], "model": "policy", "stream": stream}
            call = asyncio.ensure_future(gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=body))
            await asyncio.sleep(0.3)
            call.cancel()
            (step,) = await gateway.until_steps(1)
            p.may_load.set()
            assert (step.status, step.trainable) == ("cancelled", False)
            assert (await gateway.post(f"/t1/p1/v1/{path}", {**body, "stream": False}))[0] == 200
            assert len(p.asked) == 1


@EVERY
@STREAMED_OR_NOT
async def test_a_frozen_model_is_captured_with_its_ids_and_never_trained_on(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with engines("p", "j") as (p, j):
        pools = [pool("policy", answering(p)), pool("judge", answering(j), trainable=False)]
        async with gateway_over(tmp_path, *pools) as gateway:
            gateway.policies.take(published(7))
            body = {**BODIES[path], "model": "judge", "stream": stream}
            async with gateway.http.post(f"{gateway.url}/t1/p1/v1/{path}", json=body) as response:
                assert response.status == 200
                assert "Hel" in await response.text()
            (step,) = await gateway.until_steps(1)
    assert (step.status, step.trainable, step.token_source) == ("ok", False, "engine")
    assert (list(step.response_ids), step.integrity) == ([10, 11, 12], [])
    assert (step.engine.policy, step.engine.policy_version_start) == ("judge", None)
    assert not p.asked
