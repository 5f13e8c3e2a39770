"""Calls at `/v1/…`: the conversation is found, and becomes a trajectory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gateway.online import Conversations, named
from gateway.online.said import prefixes
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, reply_body, running_engine

CHAT = "/v1/chat/completions"


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, default_run_id="live", default_rollouts=2) as gateway:
        yield gateway


async def call(gateway: RunningGateway, messages: list[dict[str, Any]], **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, reply = await gateway.post(CHAT, {"messages": messages}, headers=named)
    assert status == 200, reply
    return dict(reply["choices"][0]["message"])


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_first_call_registers_its_trajectory(gateway: RunningGateway) -> None:
    await call(gateway, [user("hi")])
    (registered,) = gateway.registrations
    assert (registered.run_id, registered.rollouts, registered.channel) == ("live", 2, "train")
    assert registered.registered_by == "gateway"
    assert gateway.steps[0].trajectory_id == registered.trajectory_id
    assert gateway.steps[0].prompt_id == registered.prompt_id


async def test_a_conversation_is_found_by_what_was_said(gateway: RunningGateway) -> None:
    first = [{"role": "system", "content": "It is 10:00."}, user("hi")]
    said = await call(gateway, first)
    second = [
        {"role": "system", "content": "It is 10:01."},
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": f" {said['content']} "}]},
        user("more"),
    ]
    said = await call(gateway, second)
    await call(gateway, [*second, {"role": "assistant", "content": said["content"]}, user("and more")])
    assert len(gateway.registrations) == 1
    assert len({step.trajectory_id for step in gateway.steps}) == 1


async def test_rollouts_that_begin_alike_are_trajectories_of_one_task(gateway: RunningGateway) -> None:
    await call(gateway, [user("hi")])
    await call(gateway, [user("hi")])
    await call(gateway, [user("another")])
    one, two, other = sorted(gateway.registrations, key=lambda event: event.trajectory_id)
    assert len({one.trajectory_id, two.trajectory_id, other.trajectory_id}) == 3
    assert one.group_id == two.group_id != other.group_id
    echo = [user("hi"), {"role": "assistant", "content": "Hello you"}, user("more")]
    await call(gateway, echo)
    await call(gateway, echo)
    later = sorted(gateway.steps, key=lambda step: step.step_id)[3:]
    assert {step.trajectory_id for step in later} == {one.trajectory_id, two.trajectory_id}


async def test_a_failed_first_call_and_its_repetition_are_one_trajectory(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.Response(status=500)

    engine.script = script
    status, _ = await gateway.post(CHAT, HI)
    assert status == 500
    engine.script = None
    await call(gateway, HI["messages"])
    assert [step.status for step in gateway.steps] == ["failed", "ok"]
    assert len(gateway.registrations) == 1


IDS = [
    ({"thread-id": "a", "session-id": "s", "prompt_cache_key": "s"}, "thread:a", None),
    ({"thread-id": "b", "x-codex-parent-thread-id": "a"}, "thread:b", "thread:a"),
    ({"x-claude-code-session-id": "s"}, "claude:s", None),
    ({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "g"}, "claude:s:g", "claude:s"),
    ({"x-session-id": "c", "x-parent-session-id": "p"}, "session:c", "session:p"),
    ({"prompt_cache_key": "s:0"}, "cache:s", None),
    ({"prompt_cache_key": "s:12"}, "cache:s", None),
    ({"user": "someone"}, None, None),
]


@pytest.mark.parametrize(("ids", "key", "parent"), IDS)
def test_the_clients_own_ids_name_the_conversation(
    ids: dict[str, str], key: str | None, parent: str | None
) -> None:
    found = named(ids)
    assert (found.key if found else None, found.parent if found else None) == (key, parent)


async def test_a_conversation_with_an_id_is_one_trajectory_whatever_is_said(gateway: RunningGateway) -> None:
    for text in ("hi", "compacted", "other"):
        await call(gateway, [user(text)], thread_id="th-1")
    await call(gateway, [user("hi")], thread_id="th-2", x_codex_parent_thread_id="th-1")
    parent, child = gateway.registrations
    assert [step.trajectory_id for step in gateway.steps[:3]] == [parent.trajectory_id] * 3
    assert child.parent_trajectory_id == parent.trajectory_id
    assert parent.metadata["conversation"] == "thread:th-1"


async def test_another_gateway_gives_the_conversation_the_same_trajectory(engine: ScriptedEngine) -> None:
    found = []
    for _ in range(2):
        async with running_gateway(engine.url) as gateway:
            await call(gateway, [user("hi")], x_session_id="ses-1")
            found.append((gateway.registrations[0].trajectory_id, gateway.registrations[0].prompt_id))
    assert found[0] == found[1]


async def test_a_resumed_conversation_gets_a_new_trajectory_of_the_same_task(gateway: RunningGateway) -> None:
    await call(gateway, [user("hi")], x_session_id="ses-1")
    (first,) = gateway.registrations
    at = f"/{first.trajectory_id}/{first.prompt_id}/v1"
    assert (await gateway.post(f"{at}/complete_trajectory"))[0] == 200
    await call(gateway, [user("hi again")], x_session_id="ses-1")
    _, second = gateway.registrations
    assert second.trajectory_id != first.trajectory_id
    assert second.prompt_id == first.prompt_id


async def test_parallel_first_calls_of_a_conversation_meet_in_one_trajectory(gateway: RunningGateway) -> None:
    await asyncio.gather(*(call(gateway, [user(str(i))], x_session_id="ses-1") for i in range(5)))
    assert len({step.trajectory_id for step in gateway.steps}) == 1
    assert len({event.event_id for event in gateway.registrations}) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hi", "prompt_cache_key": "s:1"}),
        ("/v1/messages", {**HI, "max_tokens": 9}),
        ("/v1/responses", {"input": "hi", "stream": True}),
        ("/v1/messages", {**HI, "max_tokens": 9, "stream": True}),
    ],
)
async def test_every_protocol_has_an_online_mode(
    gateway: RunningGateway, path: str, body: dict[str, Any]
) -> None:
    async with gateway.http.post(gateway.url + path, json=body) as response:
        assert response.status == 200
        assert "Hello you" in (await response.text()).replace('"}}', "") or body.get("stream")
    assert len(gateway.steps) == 1


async def test_a_tool_turn_is_put_back_in_online_mode_too(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    tool = {"id": "chatcmpl-tool-1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.json_response(reply_body(tool_calls=[tool]))

    engine.script = script
    said = await call(gateway, [user("hi")])
    said["tool_calls"][0]["function"]["arguments"] = '{"a":1}'
    result = {"role": "tool", "tool_call_id": tool["id"], "content": "1"}
    await call(gateway, [user("hi"), {k: said[k] for k in ("role", "content", "tool_calls")}, result])
    assert len(gateway.registrations) == 1
    assert engine.requests[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


async def test_online_mode_can_be_switched_off(engine: ScriptedEngine) -> None:
    async with running_gateway(engine.url, online=False) as gateway:
        status, reply = await gateway.post(CHAT, HI)
        assert status == 404
        assert reply["error"]["code"] == "online_mode_off"
        status, reply = await gateway.post("/v1/messages", {**HI, "max_tokens": 9})
        assert (status, reply["error"]["type"]) == (404, "not_found_error")


def test_the_memory_of_conversations_is_bounded() -> None:
    memory = Conversations(max_ends=3)
    answer = json.dumps({"role": "assistant", "content": "ok"}).encode()
    prompts = [prefixes([json.dumps(user(str(i))).encode()]) for i in range(10)]
    for place, said in enumerate(prompts):
        memory.sampled(f"t{place}", said, answer)
    ends = [prefixes([answer], after=said[-1]) for said in prompts]
    assert [memory.find(end) for end in ends] == [None] * 7 + ["t7", "t8", "t9"]


messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": st.text(max_size=5)}
    ),
    max_size=6,
)


@given(messages, messages)
def test_a_prefix_has_the_same_digests_however_the_conversation_goes_on(
    begin: list[dict[str, Any]], rest: list[dict[str, Any]]
) -> None:
    raw = [json.dumps(message).encode() for message in [*begin, *rest]]
    spaced = [json.dumps(message, indent=1).encode() for message in begin]
    assert prefixes(raw)[: len(begin)] == prefixes(spaced)
