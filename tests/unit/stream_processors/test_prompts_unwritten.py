"""What the seal finds out about prompts without writing them out is what their expansion shows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.contract.delta import Leaf, Prompt, common_prefix, expand_prompt, ids_digest, leaf_of
from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import PromptDelta, StepCaptured, StepRequest, raw_json
from agentworld.platform.resolved import expand_each
from stream_processors.trajectories.id_tree import IdTree, Marks
from stream_processors.trajectories.prefixes import continued
from stream_processors.trajectories.turns import Link, Turn, beginning, turns_of
from tests.unit.stream_processors.rollouts import T0_MS, Rollout

MESSAGES = [
    b'{"role":"system","content":"be good"}',
    b'{"role":"developer","content":"be brief"}',
    b'{"role":"user","content":"go"}',
    b'{"content":"go","name":null,"role":"user"}',
    b'{"role":"assistant","content":"a"}',
    b'{"role":"tool","content":"42"}',
]
TOOLS = [msgspec.UNSET, msgspec.Raw(b"[]"), msgspec.Raw(b'[{"name":"bash"}]')]
few_ids = st.lists(st.integers(1, 3), max_size=4)


@st.composite
def captured_steps(draw: st.DrawFn) -> list[StepCaptured]:
    """Steps of one trajectory, in any order; some deltas are broken in each way they can be."""
    steps: list[StepCaptured] = []
    leaves: dict[str, Leaf] = {}
    for turn in range(draw(st.integers(1, 7))):
        step = Rollout("t", "p").step(turn)
        base = leaves.get(draw(st.sampled_from(["", *leaves])))
        size, count = (len(base.ids), len(base.messages)) if base else (0, 0)
        keep, keep_messages = draw(st.integers(0, size)), draw(st.integers(0, count))
        append = draw(few_ids) if draw(st.booleans()) or not base else []
        delta = PromptDelta(
            base_step_id=base.step_id if base else None,
            keep_tokens=keep,
            append_ids=append,
            keep_messages=keep_messages,
            append_messages=[msgspec.Raw(m) for m in draw(st.lists(st.sampled_from(MESSAGES), max_size=3))],
            tools_kept=base is not None and draw(st.booleans()),
            tools=draw(st.sampled_from(TOOLS)),
            prompt_tokens=keep + len(append),
            digest=ids_digest([*(base.ids[:keep] if base else ()), *append]),
        )
        response = draw(few_ids)
        step = msgspec.structs.replace(
            step,
            prompt=delta,
            status=draw(st.sampled_from(["ok", "ok", "failed"])),
            request=StepRequest(protocol="chat_completions", model="m", stream=False, fingerprint="f"),
            response_ids=response,
            response_logprobs=[-0.5] * len(response),
            message=draw(st.sampled_from([msgspec.UNSET, *(msgspec.Raw(m) for m in MESSAGES[4:])])),
            client_message=draw(st.sampled_from([msgspec.UNSET, msgspec.Raw(MESSAGES[5])])),
            started_at_ms=T0_MS + draw(st.integers(0, 3)),
        )
        leaves[step.step_id] = leaf_of(step, expand_prompt(delta, base))
        steps.append(step)
    for index in draw(st.lists(st.integers(0, len(steps) - 1), max_size=2)):
        steps[index] = broken(steps[index], draw)
    return draw(st.permutations(steps))


def broken(step: StepCaptured, draw: st.DrawFn) -> StepCaptured:
    others = [Rollout("t", "p").step(turn).step_id for turn in range(7)]
    change: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"digest": "0" * 16},
                {"prompt_tokens": step.prompt.prompt_tokens + 1},
                {"keep_tokens": 99},
                {"keep_tokens": -1},
                {"keep_messages": 99},
                {"base_step_id": None},
                {"base_step_id": "gone"},
                *({"base_step_id": other} for other in others),
            ]
        )
    )
    return msgspec.structs.replace(step, prompt=msgspec.structs.replace(step.prompt, **change))


def spelt(message: bytes) -> str:
    value = {key: item for key, item in json.loads(message).items() if item is not None}
    return json.dumps(value, sort_keys=True)


def told(prompt: Prompt) -> list[str]:
    return [spelt(message) for message in prompt.messages]


def without_system(messages: list[str]) -> list[str]:
    return [m for m in messages if json.loads(m)["role"] not in {"system", "developer"}]


def expanded(steps: list[StepCaptured]) -> dict[str, Prompt]:
    return {step_id: p for step_id, p in expand_each(steps).items() if isinstance(p, Prompt)}


@settings(max_examples=120, deadline=None)
@given(captured_steps())
def test_turns_know_of_their_prompts_what_expansion_shows(steps: list[StepCaptured]) -> None:
    prompts = expanded(steps)
    turns = turns_of(steps)
    assert {turn.step.step_id for turn in turns if turn.resolved} == set(prompts)
    whole = [(turn, prompts[turn.step.step_id]) for turn in turns if turn.resolved]
    for turn, prompt in whole:
        assert turn.prompt.ids.depth == len(prompt.ids)
        assert turn.prompt.ids.first_id == (prompt.ids[0] if prompt.ids else None)
        assert list(turn.prompt.roles) == [json.loads(m)["role"] for m in prompt.messages]
        assert turn.prompt.tools == prompt.tools
        for other, its in whole:
            assert (turn.prompt.ids == other.prompt.ids) == (list(prompt.ids) == list(its.ids))
            mine, theirs = told(prompt), told(its)
            assert beginning(turn.messages, other.messages) == common_prefix(mine, theirs)
            assert beginning(turn.prompt.dialogue, other.prompt.dialogue) == common_prefix(
                without_system(mine), without_system(theirs)
            )


@settings(max_examples=120, deadline=None)
@given(captured_steps())
def test_each_step_continues_what_the_expanded_prompts_say(steps: list[StepCaptured]) -> None:
    assert continued(turns_of(steps)) == continued_by_expanding(steps)


def continued_by_expanding(steps: list[StepCaptured]) -> dict[str, Link]:
    """The rules of `continued`, each prompt held against each leaf, id by id."""
    prompts = expanded(steps)
    links = {}
    for step in steps:
        if (prompt := prompts.get(step.step_id)) is None:
            continue
        exact = [
            other for other in steps
            if (its := prompts.get(other.step_id)) and its.ids and other.response_ids
            and other is not step and begins(list(prompt.ids), [*its.ids, *other.response_ids])
        ]  # fmt: skip
        by_words = [
            other for other in steps
            if (its := prompts.get(other.step_id)) and its.messages and other is not step
            and any(begins(told(prompt), [*told(its), reply]) for reply in replies(other))
        ]  # fmt: skip

        def likely(other: StepCaptured, step: StepCaptured = step) -> tuple[bool, bool, tuple[int, str]]:
            when = (other.started_at_ms, other.step_id)
            return other.status == "ok", when < (step.started_at_ms, step.step_id), when

        best = max(
            exact, key=lambda o: (len(prompts[o.step_id].ids) + len(o.response_ids), likely(o)), default=None
        )
        word = max(by_words, key=lambda o: (len(prompts[o.step_id].messages), likely(o)), default=None)
        count = {o.step_id: len(prompts[o.step_id].messages) for o in (best, word) if o}
        if best and not (word and count[word.step_id] > count[best.step_id]):
            links[step.step_id] = Link(best.step_id, "extends")
        elif word:
            its = prompts[word.step_id]
            breaks = (prompt.ids and its.ids) or offered(prompt) != offered(its)
            links[step.step_id] = Link(word.step_id, "rewritten" if breaks else "extends")
    return links


def begins(whole: list[Any], part: list[Any]) -> bool:
    return whole[: len(part)] == part


def replies(step: StepCaptured) -> list[str]:
    return [spelt(raw) for m in (step.message, step.client_message) if (raw := raw_json(m)) is not None]


def offered(prompt: Prompt) -> bytes | None:
    return None if prompt.tools in {None, b"[]"} else prompt.tools


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), few_ids), max_size=12))
def test_a_tree_of_ids_holds_the_sequences_that_were_put_in(grown: list[tuple[int, int, list[int]]]) -> None:
    tree: IdTree = IdTree()
    made: list[tuple[Any, list[int]]] = [(tree.root, [])]
    marks: Marks[list[int]] = Marks()
    marked: list[list[int]] = []
    for number, keep, ids in grown:
        point, sequence = made[number % len(made)]
        kept = keep % (len(sequence) + 1)
        longer = [*sequence[:kept], *ids]
        end = point.up_to(kept).extended(ids)
        made.append((end, longer))
        if number % 2:
            marks.put(end, longer)
            marked.append(longer)
    for point, sequence in made:
        assert point.depth == len(sequence)
        assert tree.digest(point) == ids_digest(sequence)
        longest = max((m for m in marked if begins(sequence, m)), key=len, default=None)
        assert marks.nearest(point) == (None if longest is None else (len(longest), longest))
        assert [point == other for other, _ in made] == [sequence == its for _, its in made]


def test_a_prompt_that_names_no_base_but_keeps_of_one_is_unresolved() -> None:
    step = Rollout("t", "p").step(0)
    odd = msgspec.structs.replace(step, prompt=msgspec.structs.replace(step.prompt, tools_kept=True))
    [turn] = turns_of([odd])
    assert not turn.resolved
    with pytest.raises(IntegrityError):
        expand_prompt(odd.prompt, None)


def test_turns_are_in_order_of_their_requests() -> None:
    steps = Rollout("t", "p").steps(4)
    turns: list[Turn] = turns_of(steps[::-1])
    assert [turn.step for turn in turns] == steps
