"""A trajectory's steps as a tree: order, parents, relations, retries, and the branch that trains."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.contract.delta import Leaf, Prompt, leaf_of, shorten
from agentworld.contract.events import SealedStep, StepCaptured, StepRequest
from stream_processors.trajectories.tree import branches_of, drift, placed_steps, trained_branch
from tests.unit.stream_processors.rollouts import Rollout

TOOLS = b'[{"type":"function","function":{"name":"bash"}}]'
SUMMARY = "Goal: go. Done so far: nothing."


def message(role: str, content: str) -> bytes:
    return json.dumps({"role": role, "content": content}).encode()


class Agent:
    """Makes steps as a gateway would capture them; the ids are those of a byte-wise template."""

    def __init__(self, *, with_ids: bool = True) -> None:
        self.rollout = Rollout("t", "p")
        self.steps: list[StepCaptured] = []
        self.leaves: list[Leaf] = []
        self.with_ids = with_ids

    def call(
        self,
        *messages: bytes,
        tools: bytes | None = TOOLS,
        body: str = "",
        retry: int | None = None,
        **changes: Any,
    ) -> StepCaptured:
        turn = len(self.steps)
        text = [*(tools or b""), *(byte for m in messages for byte in m)]
        prompt = Prompt(ids=text if self.with_ids else [], messages=list(messages), tools=tools)
        reply = message("assistant", f"answer {turn}")
        request = StepRequest(
            protocol="chat_completions",
            model="m",
            stream=False,
            fingerprint=body or f"body {turn}",
            retry_count=retry,
            client_ids=changes.pop("client_ids", {}),
        )
        step = self.rollout.step(turn, prompt, self.leaves, request=request, message=msgspec.Raw(reply))
        ids = list(reply) if self.with_ids else []
        step = msgspec.structs.replace(step, response_ids=ids, response_logprobs=[-0.5] * len(ids))
        if changes.get("status", "ok") != "ok":
            step = msgspec.structs.replace(
                step, response_ids=[], response_logprobs=[], message=msgspec.UNSET, token_source="none"
            )
        step = msgspec.structs.replace(step, **changes)
        self.steps.append(step)
        self.leaves.insert(0, leaf_of(step, prompt))
        return step


def reply(step: StepCaptured) -> bytes:
    assert isinstance(step.message, msgspec.Raw)
    return bytes(step.message)


SYSTEM, GO, RESULT = message("system", "be good"), message("user", "go"), message("tool", "42")


def relations(steps: list[StepCaptured]) -> list[str]:
    return [placed.relation for placed in placed_steps(steps)]


def parents(placed: list[SealedStep]) -> list[int | None]:
    places = {p.step.step_id: p.step_index for p in placed}
    return [None if p.parent_step_id is None else places[p.parent_step_id] for p in placed]


def busy_agent() -> Agent:
    """A title, a conversation with a retry and a sub-agent beside it, a compaction, two turns after it."""
    agent = Agent()
    agent.call(message("system", "name it"), GO, tools=None)
    first = agent.call(SYSTEM, GO)
    sub = agent.call(message("system", "you explore"), message("user", "look"))
    agent.call(SYSTEM, GO, reply(first), RESULT, body="same", status="failed")
    second = agent.call(SYSTEM, GO, reply(first), RESULT, body="same", retry=1)
    agent.call(message("system", "you explore"), message("user", "look"), reply(sub), RESULT)
    agent.call(SYSTEM, GO, reply(first), RESULT, reply(second), message("user", "sum up"), tools=None)
    compacted = agent.call(SYSTEM, message("user", SUMMARY))
    agent.call(SYSTEM, message("user", SUMMARY), reply(compacted), RESULT)
    return agent


def test_each_step_of_a_busy_agent_has_its_class() -> None:
    placed = placed_steps(busy_agent().steps)
    assert [(p.relation, p.superseded) for p in placed] == [
        ("side_call", False),
        ("root", False),
        ("sub_agent", False),
        ("extends", True),
        ("extends", False),
        ("extends", False),
        ("rewritten", False),
        ("rewritten", False),
        ("extends", False),
    ]
    assert parents(placed)[:6] == [None, None, 1, 1, 1, 2]
    assert drift(placed) == {
        "side_call": 1, "root": 1, "sub_agent": 1, "extends": 3, "rewritten": 2, "superseded": 1
    }  # fmt: skip


def test_the_branch_that_trains_is_the_main_conversation_to_its_last_answer() -> None:
    placed = placed_steps(busy_agent().steps)
    trained = trained_branch(placed)
    assert trained is not None
    assert trained.tip_step_id == placed[-1].step.step_id
    superseded = {p.step.step_id for p in placed if p.superseded}
    opened = {branch.tip_step_id: branch.opened_as for branch in branches_of(placed)}
    assert sorted(opened.values())[-2:] == ["side_call", "sub_agent"]
    assert opened[trained.tip_step_id] == "root"
    assert superseded.isdisjoint(opened)


@settings(max_examples=40, deadline=None)
@given(st.permutations(busy_agent().steps))
def test_the_order_of_arrival_changes_no_byte(steps: list[StepCaptured]) -> None:
    expected = placed_steps(busy_agent().steps)
    placed = placed_steps(steps)
    assert msgspec.json.encode(placed) == msgspec.json.encode(expected)
    assert branches_of(placed) == branches_of(expected)
    assert trained_branch(placed) == trained_branch(expected)


def test_a_step_comes_after_the_answer_it_holds_whatever_the_clocks_say() -> None:
    agent = Agent()
    first = agent.call(SYSTEM, GO)
    second = agent.call(SYSTEM, GO, reply(first), RESULT, started_at_ms=first.started_at_ms - 5_000)
    placed = placed_steps(agent.steps)
    assert [p.step.step_id for p in placed] == [first.step_id, second.step_id]
    assert [p.relation for p in placed] == ["root", "extends"]


def test_a_parent_is_found_without_a_delta_that_names_it() -> None:
    agent = Agent()
    first = agent.call(SYSTEM, GO)
    second = agent.call(SYSTEM, GO, reply(first), RESULT)
    alone = Prompt(
        ids=[*TOOLS, *SYSTEM, *GO, *reply(first), *RESULT],
        messages=[SYSTEM, GO, reply(first), RESULT],
        tools=TOOLS,
    )
    other_gateway = msgspec.structs.replace(second, prompt=shorten(alone, []))
    assert [(p.relation, p.parent_step_id) for p in placed_steps([first, other_gateway])] == [
        ("root", None),
        ("extends", first.step_id),
    ]


def test_messages_decide_where_the_engine_gave_no_ids() -> None:
    agent = Agent(with_ids=False)
    first = agent.call(SYSTEM, GO)
    spelt = json.dumps({"content": f"answer {0}", "tool_calls": None, "role": "assistant"}).encode()
    agent.call(SYSTEM, GO, spelt, RESULT)
    agent.call(message("system", "be better"), GO, reply(first), RESULT)
    assert relations(agent.steps) == ["root", "extends", "rewritten"]


def test_ids_that_break_the_prefix_make_a_rewrite_though_the_messages_go_on() -> None:
    agent = Agent()
    first = agent.call(SYSTEM, GO)
    ids = [7, *SYSTEM, *GO]
    prompt = Prompt(ids=ids, messages=[SYSTEM, GO, reply(first), RESULT], tools=TOOLS)
    second = msgspec.structs.replace(agent.call(SYSTEM, GO, reply(first), RESULT), prompt=shorten(prompt, []))
    placed = placed_steps([first, second])
    assert (placed[1].relation, placed[1].parent_step_id) == ("rewritten", first.step_id)


def test_the_attempt_whose_answer_the_client_went_on_from_counts() -> None:
    agent = Agent()
    used = agent.call(SYSTEM, GO, body="same")
    unused = agent.call(SYSTEM, GO, body="same", retry=1)
    agent.call(SYSTEM, GO, reply(used), RESULT)
    assert [p.step.step_id for p in placed_steps(agent.steps) if p.superseded] == [unused.step_id]


def test_at_the_end_the_last_good_attempt_counts() -> None:
    agent = Agent()
    cancelled = agent.call(SYSTEM, GO, status="cancelled")
    good = agent.call(SYSTEM, GO)
    failed = agent.call(SYSTEM, GO, status="failed")
    placed = placed_steps(agent.steps)
    assert [p.step.step_id for p in placed if p.superseded] == [cancelled.step_id, failed.step_id]
    trained = trained_branch(placed)
    assert trained is not None
    assert trained.tip_step_id == good.step_id


def test_one_prompt_asked_twice_in_other_words_is_no_retry() -> None:
    agent = Agent()
    agent.call(SYSTEM, GO)
    agent.call(SYSTEM, GO)
    agent.call(SYSTEM, GO, choice_index=1, body="body 1")
    assert not any(p.superseded for p in placed_steps(agent.steps))


def test_a_client_that_names_its_sub_agent_is_believed_after_one_turn() -> None:
    agent = Agent()
    first = agent.call(SYSTEM, GO)
    agent.call(SYSTEM, message("user", "look"), client_ids={"x-claude-code-agent-id": "a1"})
    agent.call(SYSTEM, GO, reply(first), RESULT)
    assert relations(agent.steps) == ["root", "sub_agent", "extends"]


def test_agents_that_begin_alike_and_run_side_by_side_rewrite_nothing() -> None:
    agent = Agent()
    first = agent.call(SYSTEM, GO)
    look = agent.call(SYSTEM, message("user", "look"))
    agent.call(SYSTEM, message("user", "look"), reply(look), RESULT)
    agent.call(SYSTEM, GO, reply(first), RESULT)
    assert relations(agent.steps) == ["root", "sub_agent", "extends", "extends"]


def test_no_steps_make_no_tree() -> None:
    assert (placed_steps([]), branches_of([]), trained_branch([])) == ([], [], None)


def test_messages_that_python_cannot_read_are_compared_as_they_are_spelt() -> None:
    agent = Agent(with_ids=False)
    deep = b'{"role":"user","content":' + b"[" * 2_000 + b"]" * 2_000 + b"}"
    long = b'{"role":"user","content":' + b"9" * 5_000 + b"}"
    first = agent.call(SYSTEM, deep, long)
    agent.call(SYSTEM, deep, long, reply(first), RESULT)
    assert relations(agent.steps) == ["root", "extends"]
