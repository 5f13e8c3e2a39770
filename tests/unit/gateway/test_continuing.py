"""Continuing from sampled ids: a prompt begins with exactly what was sampled, or the step says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from agentworld.contract.delta import expand
from agentworld.contract.errors import ContractViolation
from agentworld.contract.events import Continuation
from gateway.upstream_settings import load_upstreams
from tests.unit.gateway.drifting_engine import (
    BEGIN,
    END,
    DriftingEngine,
    decoded,
    drifting,
    sampled,
    tokenized,
)
from tests.unit.gateway.harness import RunningGateway, running_gateway

TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<call>add {"a":1,"b":2}</call>'
"""Written without the spaces that the template puts into arguments."""
FIRST: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello there"}]


@asynccontextmanager
async def running(*says: str, **options: Any) -> AsyncIterator[tuple[RunningGateway, DriftingEngine]]:
    async with (
        drifting(*says, **options) as engine,
        running_gateway(
            engine.url, upstream_kind=options.get("kind", "vllm"), upstream_continue_tokens=True
        ) as gateway,
    ):
        await gateway.register()
        yield gateway, engine


async def talk(gateway: RunningGateway, turns: int, *, stream: bool = False, **fields: Any) -> None:
    """A conversation in which tools answer calls and a user answers words."""
    messages = list(FIRST)
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/t1/p1/v1", api_key="none", max_retries=0
    ) as client:
        for turn in range(turns):
            asked: Any = {"model": "default", "messages": messages, **fields}
            if stream:
                async with client.chat.completions.stream(**asked) as events:
                    message = (await events.get_final_completion()).choices[0].message
            else:
                message = (await client.chat.completions.create(**asked)).choices[0].message
            said: Any = {"role": "assistant", "content": message.content}
            if message.tool_calls:
                calls = [
                    {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": "{}"}}
                    for c in message.tool_calls
                ]  # rewritten, as some clients do; the sampled turn is put back
                said = {"role": "assistant", "content": None, "tool_calls": calls}
                answer = {"role": "tool", "tool_call_id": calls[0]["id"], "content": f"00{turn}"}
            else:
                answer = {"role": "user", "content": f"and then {turn}"}
            messages = [*messages, said, answer]


def check_exact(gateway: RunningGateway, engine: DriftingEngine) -> None:
    """Every prompt is the one before, what was sampled, and what the template puts behind it."""
    prompts = expand(gateway.steps)
    for before, step in zip(gateway.steps, gateway.steps[1:], strict=False):
        leaf = [*prompts[before.step_id].ids, *before.response_ids]
        ids = list(prompts[step.step_id].ids)
        assert ids[: len(leaf)] == leaf
        assert step.continuation == Continuation(step_id=before.step_id, kept_tokens=len(leaf), drifted=True)
        assert (step.prompt.base_step_id, step.prompt.keep_tokens) == (before.step_id, len(leaf))
        assert (step.token_source, step.integrity, step.trainable) == ("engine", [], True)
        assert ids[len(leaf) : len(leaf) + 2] == [10, BEGIN]
    assert [list(prompts[step.step_id].ids) for step in gateway.steps] == engine.prompts
    assert gateway.steps[0].continuation is None


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_prompt_begins_with_exactly_the_sampled_ids(kind: str, stream: bool) -> None:
    said = [CALL, "hello world", CALL, "good bye"]
    assert tokenized("hello world") != sampled("hello world")[:-1], "or there would be nothing to prove"
    async with running(*said, kind=kind) as (gateway, engine):
        await talk(gateway, 4, stream=stream, tools=TOOLS)
        check_exact(gateway, engine)
        text = decoded(engine.prompts[-1])
        assert '"a":1,"b":2' in text, "the arguments as sampled, not as the template writes them"
        assert "and then 1" in text
        assert engine.renderings == 2 * 3


async def test_other_protocols_continue_too() -> None:
    async with running("hello world", "good bye") as (gateway, engine):
        async with anthropic.AsyncAnthropic(
            base_url=f"{gateway.url}/t1/p1", api_key="none", max_retries=0
        ) as client:
            messages: Any = [{"role": "user", "content": "say hello"}]
            first = await client.messages.create(model="default", max_tokens=9, messages=messages)
            messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "more"}]
            await client.messages.create(model="default", max_tokens=9, messages=messages)
        check_exact(gateway, engine)


async def test_without_the_setting_nothing_is_rendered_and_ids_drift() -> None:
    async with drifting("hello world", "good bye") as engine, running_gateway(engine.url) as gateway:
        await gateway.register()
        await talk(gateway, 2)
        one, two = gateway.steps
        assert engine.renderings == 0
        assert two.continuation is None
        assert two.prompt.keep_tokens < one.prompt.prompt_tokens + len(one.response_ids)


async def declined_because(reason: str, gateway: RunningGateway) -> None:
    step = gateway.steps[-1]
    assert step.continuation == Continuation(declined=reason)
    assert (step.status, step.token_source, step.trainable, step.integrity) == ("ok", "engine", True, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_ignores_ids_is_found_out_and_not_asked_again(stream: bool) -> None:
    async with running("hello world", "good bye", "once more", obeys=False) as (gateway, engine):
        await talk(gateway, 2, stream=stream)
        await declined_because("engine_rendered_anew", gateway)
        await talk(gateway, 1)
        assert engine.renderings == 2
        async with gateway.http.get(f"{gateway.url}/health") as response:
            assert response.status == 200


async def test_an_engine_that_cannot_render_answers_as_ever() -> None:
    async with running("hello world", "good bye", renders=False) as (gateway, _):
        await talk(gateway, 2)
        await declined_because("rendering_failed", gateway)


async def test_a_template_that_forgets_thoughts_is_not_overruled() -> None:
    said = ["<think>hmm</think>one", "<think>well</think>two", "three"]
    async with running(*said, forgets_thoughts=True) as (gateway, engine):
        await talk(gateway, 3)
        assert engine.prompts == [engine.render(request) for request in engine.requests]
        declined = Continuation(declined="turn_rendered_otherwise")
        assert [step.continuation for step in gateway.steps] == [None, declined, declined]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"finish_reason": "length"}, "end_of_turn_unknown"),
        ({"reason": {"stop_reason": "Observation:"}}, "end_of_turn_unknown"),
        ({"reason": {"matched_stop": "Observation:"}}, "end_of_turn_unknown"),
        ({"reason": {"stop_reason": 77}}, "end_of_turn_not_found"),
    ],
)
async def test_a_turn_that_did_not_end_by_its_own_token_is_rendered_anew(
    options: dict[str, Any], reason: str
) -> None:
    async with running("hello world", "good bye", **options) as (gateway, _):
        await talk(gateway, 2)
        await declined_because(reason, gateway)


async def test_other_tools_another_history_and_images_are_rendered_anew() -> None:
    async with running(*["hello world"] * 8) as (gateway, engine):
        said = {"role": "assistant", "content": "hello world"}
        more = {"role": "user", "content": "more"}
        await gateway.chat({"messages": FIRST})
        await gateway.chat({"messages": [*FIRST, said, more], "tools": TOOLS})
        await declined_because("no_step_extended", gateway)
        await gateway.chat({"messages": [FIRST[1], said, more]})
        await declined_because("no_step_extended", gateway)
        image = {"type": "image_url", "image_url": {"url": "data:,x"}, "text": ""}
        seen = {"role": "user", "content": [{"type": "text", "text": "see"}, image]}
        await gateway.chat({"messages": [*FIRST, said, seen]})
        await declined_because("not_only_text", gateway)
        await gateway.chat({"messages": [*FIRST, said, more], "chat_template_kwargs": {"x": 1}})
        assert gateway.steps[-1].continuation is not None
        assert gateway.steps[-1].continuation.declined == ""
        await gateway.chat({"messages": [*FIRST, said, more], "continue_final_message": True})
        await declined_because("unusual_prompt", gateway)
        assert "kv_transfer_params" not in engine.requests[-1]


async def test_the_clients_own_transfer_parameters_stay() -> None:
    async with running("hello world", "good bye") as (gateway, engine):
        await talk(gateway, 2, extra_body={"kv_transfer_params": {"do_remote_decode": True}})
        assert engine.requests[0]["kv_transfer_params"] == {"do_remote_decode": True}
        assert engine.requests[1]["kv_transfer_params"].keys() == {"do_remote_decode", "prompt_token_ids"}


async def test_a_first_new_message_that_reads_like_the_probe_is_still_told_apart() -> None:
    for content in ("0", "1", "01", " 0", "", [{"type": "text", "text": "0"}]):
        async with running("hello world", "good bye") as (gateway, engine):
            said = {"role": "assistant", "content": "hello world"}
            await gateway.chat({"messages": FIRST})
            await gateway.chat({"messages": [*FIRST, said, {"role": "user", "content": content}]})
            check_exact(gateway, engine)
            assert engine.prompts[1].count(END) == 4


def test_only_engines_that_can_are_configured_so(tmp_path: Any) -> None:
    path = tmp_path / "upstreams.toml"
    path.write_text(
        '[[pools]]\nname = "a"\n[[pools.engines]]\nname = "e"\nurl = "http://x/v1"\nkind = "openai"\n'
        "continue_tokens = true\n"
    )
    with pytest.raises(ContractViolation, match="continue_tokens"):
        load_upstreams(path)
