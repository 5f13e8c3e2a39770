"""Claw-R1's own client sequence, call by call, with its paths and field names; and its raw content."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from agentworld.contract.codec import decode
from agentworld.contract.delta import expand
from agentworld.contract.events import raw_json
from agentworld.contract.topics import TRAJECTORY_DIRECTORY
from tests.unit.gateway.harness import RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, reply_body, running_engine, sse_bytes

CALL = '<tool_call>\n{"name": "calc_gsm8k_reward", "arguments": {"answer": "72"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "calc_gsm8k_reward", "parameters": {"type": "object"}}}]
ASKED = [{"role": "user", "content": "How many clips?"}]
PARSED = {"id": "c", "type": "function", "function": {"name": "calc_gsm8k_reward", "arguments": "{}"}}
METADATA = {
    "policy_version": 3,
    "data_source": "openai/gsm8k",
    "reward_model": {"style": "rule", "ground_truth": "72"},
    "uid": "u-1",
    "n_rollouts": 2,
}


def score(
    prompt_ids: list[int], response_ids: list[int], dataset_fields: dict[str, Any], **_: Any
) -> dict[str, Any]:
    """A reward function as the settings name one."""
    right = dataset_fields["reward_model"]["ground_truth"] == "72"
    return {"reward_score": float(right), "reward_extra_info": {"ids": len(prompt_ids) + len(response_ids)}}


class ParsingEngine:
    """Parses tool calls as vLLM with a tool parser does: unless `tool_choice` is none."""

    def __init__(self, engine: ScriptedEngine, *, always: bool = False) -> None:
        self.requests = engine.requests
        self._engine = engine
        self._always = always

    async def __call__(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        parses = "tools" in body and (self._always or body.get("tool_choice") != "none")
        if body.get("stream"):
            delta = {"tool_calls": [{"index": 0, **PARSED}]} if parses else {"content": CALL}
            choice = {"index": 0, "delta": delta, "token_ids": [7], "logprobs": {"content": [{"logprob": 0}]}}
            head = {"id": "x", "model": "tiny"}
            usage = {"prompt_tokens": 3, "completion_tokens": 1}
            chunks = [
                {**head, "choices": [choice], "prompt_token_ids": [1, 2, 3]},
                {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                {**head, "choices": [], "usage": usage},
            ]
            return await self._engine.stream(request, [sse_bytes(chunks)])
        tokens = [(7, CALL, -0.5)]
        return web.json_response(reply_body(tokens=tokens, tool_calls=[PARSED] if parses else None))


@asynccontextmanager
async def running(
    *, always: bool = False, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedEngine]]:
    async with running_engine() as engine, running_gateway(engine.url, **settings) as gateway:
        engine.script = ParsingEngine(engine, always=always)
        yield gateway, engine


async def test_a_white_box_flow_runs_unmodified() -> None:
    async with running(raw_content=True) as (gateway, engine):
        status, begun = await gateway.post("/init_trajectory")
        assert status == 200
        assert set(begun) == {"trajectory_uid", "base_url"}
        parts = begun["base_url"].split("/")
        assert parts[-2:] == ["1", "v1"]
        parts[-2] = "task-7"
        base = "/".join(parts).removeprefix(gateway.url)

        body = {"channel": "train", "metadata": METADATA}
        assert await gateway.post(f"{base}/register_trajectory", body) == (200, {"status": "ok"})

        messages: list[dict[str, Any]] = list(ASKED)
        for _ in range(2):
            asked = {"model": "default", "messages": messages, "tools": TOOLS, "temperature": 1.0}
            status, reply = await gateway.post(f"{base}/chat/completions", asked)
            assert status == 200
            content = reply["choices"][0]["message"]["content"]
            call = json.loads(content.split("<tool_call>")[1].split("</tool_call>")[0])
            assert call["arguments"] == {"answer": "72"}
            assert not reply["choices"][0]["message"].get("tool_calls")
            messages += [{"role": "assistant", "content": content}, {"role": "tool", "content": "1.0"}]
        assert [request["tools"] for request in engine.requests] == [TOOLS, TOOLS]
        assert {request["model"] for request in engine.requests} == {"tiny"}

        body = {"reward": 1.0, "channel": "train"}
        assert await gateway.post(f"{base}/complete_trajectory", body) == (200, {"status": "ok"})
        assert await gateway.post(f"{base}/complete_trajectory") == (200, {"status": "ok"})

        (registered,) = gateway.registrations
        assert (registered.prompt_id, registered.rollouts, registered.metadata) == ("task-7", 2, METADATA)
        steps = gateway.steps
        assert [step.trajectory_id for step in steps] == [begun["trajectory_uid"]] * 2
        assert all(step.token_source == "engine" and step.trainable for step in steps)
        assert json.loads(raw_json(steps[0].message) or b"")["content"] == CALL
        assert len(expand(steps)[steps[1].step_id].messages) == 3
        assert [reward.value for reward in gateway.rewards] == [1.0]
        assert len(gateway.completions) == 1


async def test_steps_sampled_by_the_flow_are_submitted_with_every_field_it_knows() -> None:
    async with running() as (gateway, _):
        step = {
            "prompt_ids": [1, 2],
            "response_ids": [3, 4],
            "multi_modal_data": {"image": ["ref"]},
            "reward": 0.5,
            "rollout_log_probs": [-0.1, -0.2],
            "routed_experts": [[0], [1]],
            "trajectory_uid": "t",
            "prompt_uid": "p",
            "step_index": 0,
            "policy_version": 3,
            "is_last": True,
            "metadata": METADATA,
        }
        reply = await gateway.post("/submit_steps?channel=val", {"steps": [step]})
        assert reply == (200, {"accepted": 1})
        (captured,) = gateway.steps
        assert (captured.response_ids, captured.response_logprobs) == ([3, 4], [-0.1, -0.2])
        assert captured.extras["multi_modal_data"] == {"image": ["ref"]}
        assert captured.metadata == METADATA
        assert (gateway.registrations[0].channel, gateway.registrations[0].rollouts) == ("val", 2)
        assert len(gateway.completions) == 1
        optional = {"multi_modal_data", "reward", "rollout_log_probs", "routed_experts", "metadata"}
        bare = {k: (None if k in optional else v) for k, v in step.items()} | {"trajectory_uid": "t2"}
        assert await gateway.post("/submit_steps", {"steps": [bare]}) == (200, {"accepted": 1})


async def test_a_response_is_scored_by_the_configured_function() -> None:
    async with running(reward_function=f"{__name__}:score") as (gateway, _):
        body = {
            "prompt_ids": [1, 2],
            "response_ids": [3],
            "multi_modal_data": None,
            "num_turns": 2,
            "extra_fields": {},
            "dataset_fields": METADATA,
        }
        status, reply = await gateway.post("/compute_reward", body)
    assert status == 200
    assert math.isclose(reply.pop("reward_score"), 1.0)
    assert reply == {"reward_extra_info": {"ids": 3}}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_registration_decides_between_raw_and_parsed_content(stream: bool) -> None:
    async with running() as (gateway, engine):
        await gateway.register("raw", raw_content=True)
        await gateway.register("parsed")
        body = {"messages": ASKED, "tools": TOOLS, "stream": stream}
        for trajectory in ("raw", "parsed"):
            status, text = await gateway.chat_text(body, at=f"/{trajectory}/p1")
            assert status == 200
            assert ("<tool_call>" in text) is (trajectory == "raw")
        raw, parsed = gateway.steps
        assert json.loads(raw_json(raw.message) or b"") == {"role": "assistant", "content": CALL}
        assert "tool_calls" in json.loads(raw_json(parsed.message) or b"")
        assert [request.get("tool_choice") for request in engine.requests] == ["none", None]
        records = gateway.log.records(TRAJECTORY_DIRECTORY.name)
        states = [decode(TRAJECTORY_DIRECTORY, record.value) for record in records]
        assert {state.trajectory_id: state.raw_content for state in states} == {"raw": True, "parsed": False}


async def test_another_raw_content_is_another_registration_and_no_flag_is_422() -> None:
    async with running() as (gateway, _):
        await gateway.register(raw_content=True)
        status, reply = await gateway.post("/t1/p1/v1/register_trajectory", {"metadata": {}})
        assert (status, reply["error"]["code"]) == (409, "registration_conflict")
        status, reply = await gateway.post(
            "/t2/p1/v1/register_trajectory", {"metadata": {"raw_content": "yes"}}
        )
        assert (status, reply["error"]["code"]) == (422, "invalid_metadata")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_parses_all_the_same_is_told_of_and_its_step_is_kept(stream: bool) -> None:
    async with running(always=True, raw_content=True) as (gateway, _):
        await gateway.register()
        _, text = await gateway.chat_text({"messages": ASKED, "tools": TOOLS, "stream": stream})
        assert "raw_content_unavailable" in text
        (step,) = gateway.steps
        assert step.status == "failed"
        assert step.response_ids == [7]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_generate_without_max_tokens_is_never_cut_after_16(kind: str) -> None:
    async with running(upstream_kind=kind, upstream_model="tiny") as (gateway, engine):
        status, reply = await gateway.post("/generate", {"prompt_ids": [1], "sampling_params": {}})
        if kind == "sglang":
            assert (status, reply["error"]["code"]) == (400, "max_tokens_missing")
        else:
            assert engine.completions == [
                {"model": "tiny", "prompt": [1], "max_tokens": None, "return_token_ids": True, "logprobs": 0}
            ]
