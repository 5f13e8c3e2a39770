"""Text completions and Claw-R1's `/generate`: token ids in, token ids out; and the counting of tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web

from agentworld.contract.delta import expand
from agentworld.contract.events import raw_json
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import sse_bytes

TOKENS = [(10, "Hel", -0.1), (11, "lo", -0.2)]
HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class CompletionEngine:
    """vLLM's text completions."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self.tokenizes = True
        self.tells_prompt_ids = True

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        prompt = {"prompt_token_ids": [1, 2, 3]} if self.tells_prompt_ids else {}
        if not body.get("stream"):
            choice = {
                "index": 0,
                "text": "Hello",
                "finish_reason": "stop",
                "token_ids": [t for t, _, _ in TOKENS],
                "logprobs": {"token_logprobs": [p for _, _, p in TOKENS], "tokens": ["Hel", "lo"]},
            }
            return web.json_response({**HEAD, "choices": [choice | prompt], "usage": USAGE})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunks: list[dict[str, Any]] = []
        for place, (token, text, logprob) in enumerate(TOKENS):
            choice = {"index": 0, "text": text, "token_ids": [token], "finish_reason": None}
            choice |= {"logprobs": {"token_logprobs": [logprob]}} | (prompt if place == 0 else {})
            chunks.append({**HEAD, "choices": [choice]})
        chunks.append({**HEAD, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        chunks.append({**HEAD, "choices": [], "usage": USAGE})
        await response.write(sse_bytes(chunks))
        return response

    async def tokenize(self, request: web.Request) -> web.Response:
        if not self.tokenizes:
            return web.Response(status=404)
        self.requests.append(await request.json())
        return web.json_response({"count": 42, "tokens": [], "max_model_len": 99})

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})


@asynccontextmanager
async def running() -> AsyncIterator[tuple[RunningGateway, CompletionEngine]]:
    engine = CompletionEngine()
    app = web.Application()
    app.router.add_post("/v1/completions", engine.completions)
    app.router.add_post("/tokenize", engine.tokenize)
    app.router.add_get("/v1/models", engine.models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with running_gateway(f"http://127.0.0.1:{runner.addresses[0][1]}/v1") as gateway:
            await gateway.register()
            yield gateway, engine
    finally:
        await runner.cleanup()


def check_step(gateway: RunningGateway, protocol: str) -> None:
    (step,) = gateway.steps
    assert step.request.protocol == protocol
    assert (step.status, step.token_source, step.integrity, step.trainable) == ("ok", "engine", [], True)
    assert (step.response_ids, step.response_logprobs) == ([10, 11], [-0.1, -0.2])
    prompt = expand([step])[step.step_id]
    assert (list(prompt.ids), list(prompt.messages)) == ([1, 2, 3], [])
    assert raw_json(step.message) == b'{"role":"assistant","content":"Hello"}'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["Say hello", [1, 2, 3], [[1, 2, 3]]])
async def test_a_text_completion_is_captured_with_its_ids(prompt: Any, stream: bool) -> None:
    async with (
        running() as (gateway, engine),
        openai.AsyncOpenAI(base_url=f"{gateway.url}/t1/p1/v1", api_key="none", max_retries=0) as client,
    ):
        if stream:
            events = await client.completions.create(model="default", prompt=prompt, stream=True)
            text = "".join([event.choices[0].text async for event in events])
        else:
            reply = await client.completions.create(model="default", prompt=prompt)
            text = reply.choices[0].text
            assert reply.choices[0].logprobs is None
            assert "token_ids" not in (reply.choices[0].model_extra or {})
        assert text == "Hello"
        asked = engine.requests[0]
        assert (asked["return_token_ids"], asked["logprobs"], asked["model"]) == (True, 0, "tiny")
        assert asked["prompt"] == (prompt if isinstance(prompt, str) else [1, 2, 3])
        check_step(gateway, "completions")


async def test_a_text_completion_without_a_trajectory_begins_one() -> None:
    async with running() as (gateway, _):
        for prompt in ("a", "a", "b"):
            assert (await gateway.post("/v1/completions", {"prompt": prompt}))[0] == 200
        steps = gateway.steps
        assert len({step.trajectory_id for step in steps}) == 3
        assert len({step.prompt_id for step in steps}) == 2


async def test_ids_sent_as_the_prompt_are_the_prompt_where_the_engine_does_not_repeat_them() -> None:
    async with running() as (gateway, engine):
        engine.tells_prompt_ids = False
        await gateway.post("/t1/p1/v1/completions", {"prompt": [1, 2, 3]})
        check_step(gateway, "completions")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x", "echo": True}, "echo"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "n": 0}, "n"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
    ],
)
async def test_what_is_no_text_completion_is_400_and_names_the_field(body: Any, field: str) -> None:
    async with running() as (gateway, _):
        status, reply = await gateway.post("/t1/p1/v1/completions", body)
        assert status == 400
        assert f"`{field}`" in reply["error"]["message"]


@pytest.mark.parametrize("captured", ["by body", "by path", "not"])
async def test_generate_is_token_in_token_out(captured: str) -> None:
    async with running() as (gateway, engine):
        body: dict[str, Any] = {
            "prompt_ids": [1, 2, 3],
            "sampling_params": {"max_tokens": 7, "temperature": 0.5, "logprobs": True, "model": "tiny"},
        }
        if captured == "by body":
            body |= {"trajectory_uid": "t1", "prompt_uid": "p1"}
        status, reply = await gateway.post(
            "/t1/p1/v1/generate" if captured == "by path" else "/generate", body
        )
        assert status == 200
        assert reply == {"token_ids": [10, 11], "log_probs": [-0.1, -0.2], "stop_reason": "stop"}
        asked = engine.requests[0]
        assert (asked["prompt"], asked["max_tokens"], asked["temperature"]) == ([1, 2, 3], 7, 0.5)
        if captured == "not":
            assert not gateway.events[1:]
        else:
            check_step(gateway, "generate")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt_ids"),
        ({"prompt_ids": "x"}, "prompt_ids"),
        ({"prompt_ids": [1], "image_data": ["x"]}, "image_data"),
        ({"prompt_ids": [1], "sampling_params": []}, "sampling_params"),
        ({"prompt_ids": [1], "trajectory_uid": "t1"}, "prompt_uid"),
    ],
)
async def test_what_cannot_be_generated_is_400_and_names_the_field(body: Any, field: str) -> None:
    async with running() as (gateway, _):
        status, reply = await gateway.post("/generate", body)
        assert status == 400
        assert field in reply["error"]["message"]


@pytest.mark.parametrize("at", ["/t1/p1", ""])
async def test_tokens_are_counted_by_the_engine_else_estimated(at: str) -> None:
    async with (
        running() as (gateway, engine),
        anthropic.AsyncAnthropic(base_url=gateway.url + at, api_key="none", max_retries=0) as client,
    ):
        messages: Any = HI["messages"]
        counted = await client.messages.count_tokens(model="default", messages=messages, system="Be kind.")
        assert counted.input_tokens == 42
        assert not counted.model_extra
        (asked,) = engine.requests
        assert asked["model"] == "tiny"
        assert [m["role"] for m in asked["messages"]] == ["system", "user"]
        engine.tokenizes = False
        estimated = await client.messages.count_tokens(model="default", messages=messages, system="Be kind.")
        assert estimated.input_tokens > 10
        assert estimated.model_extra == {"estimated": True}
        assert not gateway.steps
