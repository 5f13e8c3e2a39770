"""A chat call: what the engine is asked, what the client sees, what is captured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from agentworld.contract.delta import expand
from agentworld.contract.events import Place, raw_json
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import (
    TOOL,
    ScriptedEngine,
    reply_body,
    running_engine,
    sse_bytes,
    stream_chunks,
)

STREAM = {**HI, "stream": True}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url) as gateway:
        await gateway.register()
        yield gateway


def chunks_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def test_the_engine_is_asked_for_ids_and_logprobs_and_unknown_fields_travel(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.chat({**HI, "model": "tiny", "temperature": 0.7, "chat_template_kwargs": {"x": [1]}})
    asked = engine.requests[0]
    assert asked["return_token_ids"] is True
    assert asked["logprobs"] is True
    assert asked["chat_template_kwargs"] == {"x": [1]}
    assert "stream_options" not in asked


async def test_the_client_sees_nothing_it_did_not_ask_for(gateway: RunningGateway) -> None:
    status, reply = await gateway.chat()
    assert status == 200
    assert "prompt_token_ids" not in reply
    assert "token_ids" not in reply["choices"][0]
    assert reply["choices"][0]["logprobs"] is None
    assert reply["choices"][0]["message"]["content"] == "Hello you"


async def test_the_client_keeps_what_it_asked_for(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    _, reply = await gateway.chat({**HI, "logprobs": True, "top_logprobs": 2, "return_token_ids": True})
    assert engine.requests[0]["top_logprobs"] == 2
    assert reply["prompt_token_ids"] == [1, 2, 3]
    assert reply["choices"][0]["token_ids"] == [10, 11, 12]
    assert len(reply["choices"][0]["logprobs"]["content"]) == 3


async def test_the_step_has_the_engines_ids_and_logprobs(gateway: RunningGateway) -> None:
    await gateway.chat({**HI, "temperature": 0.5, "user": "someone"})
    (step,) = gateway.steps
    assert step.status == "ok"
    assert expand([step])[step.step_id].ids == [1, 2, 3]
    assert step.response_ids == [10, 11, 12]
    assert step.response_logprobs == [-0.1, -0.2, -0.3]
    assert step.token_source == "engine"
    assert step.trainable
    assert step.integrity == []
    assert step.engine_response_tokens == 3
    assert step.request.sampling == {"temperature": 0.5, "user": "someone"}
    assert step.engine.request_id == "chatcmpl-1"


async def test_a_streamed_call_captures_the_same_step_as_a_whole_one(gateway: RunningGateway) -> None:
    await gateway.chat()
    await gateway.chat_text(STREAM)
    whole, streamed = gateway.steps
    for name in ("response_ids", "response_logprobs", "finish_reason", "token_source", "integrity"):
        assert getattr(whole, name) == getattr(streamed, name)
    assert raw_json(whole.message) == raw_json(streamed.message)
    assert streamed.first_token_ms is not None


async def test_tool_calls_are_the_same_streamed_or_whole(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body.get("stream"):
            return await engine.stream(request, [sse_bytes(stream_chunks(tool_calls=[TOOL]))])
        return web.json_response(reply_body(tool_calls=[TOOL]))

    engine.script = script
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    _, reply = await gateway.chat({**HI, "tools": tools})
    assert reply["choices"][0]["message"]["tool_calls"] == [TOOL]
    await gateway.chat_text({**STREAM, "tools": tools})
    whole, streamed = gateway.steps
    assert json.loads(raw_json(whole.message) or b"")["tool_calls"] == [TOOL]
    assert raw_json(whole.message) == raw_json(streamed.message)
    assert streamed.prompt.tools_kept
    assert json.loads(expand([whole, streamed])[streamed.step_id].tools or b"") == tools


async def test_the_usage_chunk_is_hidden_unless_asked_for(gateway: RunningGateway) -> None:
    _, hidden = await gateway.chat_text(STREAM)
    assert all(chunk["choices"] for chunk in chunks_of(hidden))
    _, shown = await gateway.chat_text({**STREAM, "stream_options": {"include_usage": True}})
    assert chunks_of(shown)[-1]["usage"]["completion_tokens"] == 3
    assert hidden.endswith("data: [DONE]\n\n")
    assert shown.endswith("data: [DONE]\n\n")
    assert "token_ids" not in shown


async def test_the_first_text_reaches_the_client_before_the_engines_last_token(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    client_has_text = asyncio.Event()

    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunks = stream_chunks()
        await response.write(sse_bytes(chunks[:2], done=False))
        await client_has_text.wait()
        await response.write(sse_bytes(chunks[2:]))
        return response

    engine.script = script
    async with gateway.http.post(f"{gateway.url}/t1/p1/v1/chat/completions", json=STREAM) as response:
        text = b""
        while b"Hel" not in text:
            text += await response.content.readany()
        assert not gateway.steps
        client_has_text.set()
        text += await response.content.read()
    assert text.endswith(b"[DONE]\n\n")
    assert len(gateway.steps) == 1


class HeldPublisher:
    """Acknowledges steps only when let."""

    def __init__(self) -> None:
        self.log = InMemoryLog()
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def publish(self, record: OutRecord) -> Place | None:
        if dict(record.headers)["type"] == b"step_captured":
            self.asked.set()
            await self.let.wait()
        return self.log.append(record)

    async def close(self) -> None: ...


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_ends_only_after_the_step_is_durable(engine: ScriptedEngine, stream: bool) -> None:
    publisher = HeldPublisher()
    async with running_gateway(engine.url, publisher=publisher) as gateway:
        await gateway.register()
        call = asyncio.create_task(gateway.chat_text({**HI, "stream": stream}))
        await publisher.asked.wait()
        _, pending = await asyncio.wait({call}, timeout=0.2)
        assert pending, "the reply ended before the acknowledgement"
        publisher.let.set()
        status, text = await call
    assert status == 200
    assert "[DONE]" in text if stream else json.loads(text)


async def test_each_choice_is_a_step_of_its_own(gateway: RunningGateway) -> None:
    await gateway.chat({**HI, "n": 2})
    await gateway.chat_text({**STREAM, "n": 2})
    assert [step.choice_index for step in gateway.steps] == [0, 1, 0, 1]
    assert len({step.step_id for step in gateway.steps}) == 4
    assert all(step.integrity == [] and step.response_ids == [10, 11, 12] for step in gateway.steps)


async def test_the_next_turn_is_a_delta_of_the_one_before(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.chat()

    async def script(_: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response(reply_body(prompt_ids=[1, 2, 3, 10, 11, 12, 7]))

    engine.script = script
    longer = [
        *HI["messages"],
        {"role": "assistant", "content": "Hello you"},
        {"role": "user", "content": "x"},
    ]
    await gateway.chat({"messages": longer})
    first, second = gateway.steps
    assert second.prompt.base_step_id == first.step_id
    assert second.prompt.keep_tokens == 6
    assert second.prompt.append_ids == [7]
    prompt = expand(gateway.steps)[second.step_id]
    assert prompt.ids == [1, 2, 3, 10, 11, 12, 7]
    assert [json.loads(message) for message in prompt.messages] == longer


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"prompt_token_ids": None}, "prompt_ids_missing"),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 4}}, "usage_mismatch"),
        ({"usage": {"prompt_tokens": 4, "completion_tokens": 3}}, "prompt_length_mismatch"),
    ],
)
async def test_a_step_that_cannot_be_trusted_says_so(
    gateway: RunningGateway, engine: ScriptedEngine, changes: dict[str, Any], failed: str
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.json_response(reply_body() | changes)

    engine.script = script
    assert (await gateway.chat())[0] == 200
    (step,) = gateway.steps
    assert failed in step.integrity
    assert step.token_source == "none"
    assert not step.trainable


@pytest.mark.parametrize(
    ("field", "value", "failed"),
    [
        ("token_ids", None, "ids_missing"),
        ("token_ids", [10], "length_mismatch"),
        ("logprobs", None, "logprobs_missing"),
    ],
)
async def test_a_choice_that_cannot_be_trusted_says_so(
    gateway: RunningGateway, engine: ScriptedEngine, field: str, value: Any, failed: str
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        body = reply_body()
        body["choices"][0][field] = value
        return web.json_response(body)

    engine.script = script
    assert (await gateway.chat())[0] == 200
    (step,) = gateway.steps
    assert failed in step.integrity
    assert not step.trainable


async def test_the_policy_version_is_the_engines_word_else_the_gateways_view(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    gateway.policies.published("default", 4)
    await gateway.chat()

    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.json_response(reply_body(weight_version="7"))

    engine.script = script
    await gateway.chat()
    versions = [(s.engine.policy_version_start, s.engine.policy_version_end) for s in gateway.steps]
    assert versions == [(4, 4), (7, 7)]


async def test_default_means_the_engines_only_model(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    await gateway.chat({**HI, "model": "default"})
    assert engine.requests[0]["model"] == "tiny"


async def test_default_is_refused_where_the_engine_has_several_models(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    engine.models = ["a", "b"]
    status, reply = await gateway.chat({**HI, "model": "default"})
    assert status == 400
    assert reply["error"]["code"] == "model_ambiguous"


async def test_the_clients_key_goes_to_the_engine_and_nowhere_else(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.chat(headers={"Authorization": "Bearer client-secret"})
    assert engine.headers[0]["Authorization"] == "Bearer client-secret"
    assert all(b"client-secret" not in r.value for r in gateway.log.records("trajectory-events") if r.value)


async def test_a_configured_key_replaces_the_clients(engine: ScriptedEngine) -> None:
    async with running_gateway(engine.url, upstream_api_key="ours") as gateway:
        await gateway.register()
        await gateway.chat(headers={"Authorization": "Bearer client-secret"})
    assert engine.headers[0]["Authorization"] == "Bearer ours"
