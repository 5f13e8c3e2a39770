"""Sampled turns come back byte for byte, whatever clients do to them; what is not certain stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.messages import MessagesCall
from gateway.engine import EngineObject
from gateway.restore import SampledTurn, TurnMemory, Turns, as_seen, restore
from tests.unit.gateway.dialects.messages.answers import SAMPLED, Sampled
from tests.unit.gateway.dialects.messages.samples import dialect

Block = dict[str, Any]
CLAUDE = dialect()
HI: dict[str, Any] = {"role": "user", "content": "hi"}


def request(*turns: dict[str, Any]) -> MessagesCall:
    return CLAUDE.parse(json.dumps({"model": "m", "system": "Be brief.", "messages": turns}).encode())


def shown(call: MessagesCall, sampled: Sampled) -> list[Block]:
    """The content blocks that the client gets."""
    reply = json.loads(CLAUDE.reply(call, EngineObject.parse(json.dumps(sampled.reply()).encode())))
    blocks: list[Block] = reply["content"]
    return blocks


def remembered(turns: Turns, call: MessagesCall, sampled: Sampled, step: str = "s1") -> None:
    turns.add(SampledTurn.of(step, sampled.captured(), call.messages, call.seen_ids()))


def results(blocks: list[Block]) -> list[Block]:
    return [
        {"type": "tool_result", "tool_use_id": b["id"], "content": "ok"}
        for b in blocks
        if b["type"] == "tool_use"
    ]


def assistant(blocks: list[Block]) -> dict[str, Any]:
    return {"role": "assistant", "content": blocks}


def user(blocks: list[Block]) -> dict[str, Any]:
    return {"role": "user", "content": blocks}


def claude_code(block: Block) -> Block:
    """What Claude Code does to a tool call: other key order and types, defaults, `cd` and blanks gone."""
    if block["type"] != "tool_use":
        return block
    given = dict(reversed(block["input"].items()))
    changed = {
        k: v.rstrip().removeprefix("cd /repo && ") if isinstance(v, str) else v for k, v in given.items()
    }
    return {**block, "input": {**changed, "replace_all": False}}


def openclaw(block: Block) -> Block:
    """What OpenClaw does to ids."""
    return {k: re.sub("[^A-Za-z0-9]", "", v) if k in {"id", "tool_use_id"} else v for k, v in block.items()}


TOOL_TURN = Sampled(
    "I should look.\n",
    "\n\nLooking. ",
    [
        ("Bash", '{"timeout": "5000", "command": "cd /repo && ls -la  "}'),
        ("Read", '{ "file_path":"/repo/a.txt" }'),
    ],
)


@pytest.mark.parametrize("change", [claude_code, openclaw, lambda b: b])
def test_rewritten_tool_turn_comes_back_as_sampled_and_results_answer_the_engines_ids(change: Any) -> None:
    first, turns = request(HI), Turns()
    blocks = shown(first, TOOL_TURN)
    remembered(turns, first, TOOL_TURN)
    echoed = [change(b) for b in blocks]
    answers = [change(b) for b in reversed(results(blocks))]
    call = request(HI, assistant(echoed), user([*answers, {"type": "text", "text": "go on"}]))
    restored = restore(call.messages, turns)
    assert restored.messages[: len(first.messages) + 1] == [*first.messages, TOOL_TURN.captured()]
    ids = [json.loads(m).get("tool_call_id") for m in restored.messages[-3:]]
    assert ids == ["call_0", "call_1", None]
    assert [r.client for r in restored.replaced] == [call.messages[2]]
    assert json.loads(bytes(restored.array())) == [json.loads(m) for m in restored.messages]


@given(SAMPLED, st.sampled_from([claude_code, openclaw]))
@settings(max_examples=80, deadline=None)
def test_next_prompt_begins_with_this_prompt_and_what_was_sampled(sampled: Sampled, change: Any) -> None:
    first, turns = request(HI), Turns()
    blocks = shown(first, sampled)
    remembered(turns, first, sampled)
    turn = [assistant([change(b) for b in blocks])] if blocks else []
    after = user([*map(openclaw, results(blocks)), {"type": "text", "text": "next"}])
    restored = restore(request(HI, *turn, after).messages, turns)
    assert restored.messages[: len(first.messages) + 1] == [*first.messages, sampled.captured()]


@given(SAMPLED)
@settings(max_examples=60, deadline=None)
def test_faithful_echo_is_the_captured_message_even_when_nothing_is_remembered(sampled: Sampled) -> None:
    call = request(HI)
    blocks = shown(call, sampled)
    if not sampled.content.strip() or (sampled.reasoning and not sampled.reasoning.strip()):
        return
    echo = json.loads(request(HI, assistant(blocks), HI).messages[2])
    seen = json.loads(as_seen(sampled.captured(), call.seen_ids()))
    for mine, theirs in zip(echo.get("tool_calls", ()), seen.get("tool_calls", ()), strict=True):
        mine["function"]["arguments"] = json.loads(mine["function"]["arguments"])
        theirs["function"]["arguments"] = json.loads(theirs["function"]["arguments"] or "{}")
    assert echo == seen


def test_broken_arguments_keep_what_the_client_made_of_them_unless_told_otherwise() -> None:
    sampled = Sampled("hm", "", [("Bash", '{"command": "l'), ("Bash", '{ "command": "ls" }')])
    first, turns = request(HI), Turns()
    blocks = shown(first, sampled)
    remembered(turns, first, sampled)
    call = request(HI, assistant(blocks), user(results(blocks)))
    readable = restore(call.messages, turns)
    calls = json.loads(readable.messages[2])["tool_calls"]
    assert json.loads(calls[0]["function"]["arguments"])["__unparsedToolInput"]["raw"] == '{"command": "l'
    assert calls[1]["function"]["arguments"] == '{ "command": "ls" }'
    assert [c["id"] for c in calls] == ["call_0", "call_1"]
    assert [r.exact for r in readable.replaced] == [False]
    assert restore(call.messages, turns, arguments="sampled").messages[2] == sampled.captured()


def test_thinking_only_turn_that_was_left_out_returns_where_it_stood() -> None:
    tool = Sampled("", "", [("f", "{}")])
    first, turns = request(HI), Turns()
    blocks = shown(first, tool)
    remembered(turns, first, tool)
    second = request(HI, assistant(blocks), user(results(blocks)))
    prompt = restore(second.messages, turns).messages
    silent = Sampled("only thoughts", "\n")
    turns.add(SampledTurn.of("s2", silent.captured(), prompt))
    reminder = {"type": "text", "text": "say something"}
    third = request(HI, assistant(blocks), user([*results(blocks), reminder]))
    restored = restore(third.messages, turns)
    assert restored.messages == [*prompt, silent.captured(), third.messages[-1]]
    assert (restored.replaced[-1].step_id, restored.replaced[-1].client) == ("s2", None)
    assert restore(second.messages, turns).messages == prompt, "a retry of the same prompt"


def test_turn_split_over_several_messages_is_joined() -> None:
    first, turns = request(HI), Turns()
    blocks = shown(first, TOOL_TURN)
    remembered(turns, first, TOOL_TURN)
    one, two = results(blocks)
    parts = [assistant(blocks[:-1]), user([one]), assistant(blocks[-1:]), user([two])]
    restored = restore(request(HI, *parts).messages, turns)
    assert [json.loads(m)["role"] for m in restored.messages[2:]] == ["assistant", "tool", "tool"]
    assert restored.messages[2] == TOOL_TURN.captured()


def test_turn_that_lost_a_tool_call_stays_as_the_client_sent_it() -> None:
    first, turns = request(HI), Turns()
    blocks = shown(first, TOOL_TURN)
    remembered(turns, first, TOOL_TURN)
    call = request(HI, assistant(blocks[:-1]), user(results(blocks)[:1]))
    assert restore(call.messages, turns).messages == call.messages


def test_same_words_sampled_twice_are_told_apart_by_where_they_stand() -> None:
    turns, sampled = Turns(), [Sampled("first", "Done."), Sampled("second", "Done.\n")]
    prompt = request(HI).messages
    for place, one in enumerate(sampled):
        turns.add(SampledTurn.of(f"s{place}", one.captured(), prompt))
        prompt = [*prompt, one.captured(), request(HI).messages[-1]]
    text = assistant([{"type": "text", "text": "Done."}])
    assert restore(request(HI, text, HI, text, HI).messages, turns).messages == prompt
    elsewhere = request({"role": "user", "content": "another start"}, text, HI)
    assert restore(elsewhere.messages, turns).messages == elsewhere.messages


def test_one_sampled_turn_is_not_put_in_two_places_of_the_same_words() -> None:
    turns, sampled = Turns(), Sampled("second", "Done.")
    turns.add(SampledTurn.of("s1", sampled.captured(), [b"{}"]))
    text = assistant([{"type": "text", "text": "Done."}])
    call = request(HI, text, HI, text, HI)
    assert restore(call.messages, turns).messages == call.messages


def test_messages_of_other_forms_pass_untouched() -> None:
    turns = Turns()
    turns.add(SampledTurn.of("s1", Sampled("", "x").captured(), []))
    strange = [
        b'{"role": 5}',
        b"[]",
        b'{"role":"tool","content":"x"}',
        b'{"role":"assistant","tool_calls":3}',
    ]
    assert restore(strange, turns).messages == strange


def test_ids_that_do_not_fit_the_turn_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="1 ids were seen"):
        SampledTurn.of("s1", TOOL_TURN.captured(), [], ["toolu1"])


def test_memory_is_bounded_and_forgets_the_oldest_first() -> None:
    memory = TurnMemory(per_trajectory=2, max_bytes=10_000)
    for number in range(5):
        sampled = Sampled("", f"text {number}")
        memory.add("t1", SampledTurn.of(f"s{number}", sampled.captured(), []))
        memory.add("t1", SampledTurn.of(f"s{number}", sampled.captured(), []))
    assert list(memory.turns("t1").all) == ["s3", "s4"]
    memory.add("t2", SampledTurn.of("big", Sampled("", "x" * 4_000).captured(), []))
    memory.turns("t1")
    memory.add("t3", SampledTurn.of("bigger", Sampled("", "y" * 2_500).captured(), []))
    assert not memory.turns("t2").all
    assert memory.turns("t1").all
    memory.forget("t1")
    memory.forget("t3")
    assert memory.size_bytes == 0
    assert not memory.turns("unknown").all


def test_client_form_of_a_turn_is_reported_once() -> None:
    memory, first = TurnMemory(per_trajectory=9, max_bytes=10**6), request(HI)
    blocks = shown(first, TOOL_TURN)
    memory.add("t1", SampledTurn.of("s1", TOOL_TURN.captured(), first.messages, first.seen_ids()))
    call = request(HI, assistant(blocks), user(results(blocks)))
    for expected in (1, 0):
        replaced = restore(call.messages, memory.turns("t1")).replaced
        assert len(memory.news("t1", replaced)) == expected
