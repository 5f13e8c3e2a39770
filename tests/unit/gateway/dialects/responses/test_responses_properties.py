from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.responses.freeform import FreeformInput, freeform_arguments
from tests.unit.gateway.dialects.responses.engine_turns import Call, Turn, captured, chunks, whole
from tests.unit.gateway.dialects.responses.samples import (
    CODEX,
    SUMMARY,
    call_of,
    dialect,
    events_of,
    streamed,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
freeform = texts.map(freeform_arguments)
arguments = st.one_of(texts, st.dictionaries(texts, st.integers(), max_size=3).map(json.dumps))
called = st.one_of(
    st.tuples(st.sampled_from(["exec_command", "team__ask", "unknown"]), arguments),
    st.tuples(st.sampled_from(["apply_patch", "team__tell"]), freeform),
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    calls = draw(st.lists(called, max_size=3))
    refusal = draw(st.sampled_from(["", "I will not."]))
    return Turn(
        reasoning=draw(texts),
        content=None if refusal else draw(st.none() | texts) if calls else draw(texts),
        calls=tuple(Call(name, args, f"call_{place}") for place, (name, args) in enumerate(calls)),
        finish_reason=draw(st.sampled_from(["stop", "tool_calls", "length"])),
        refusal=refusal,
    )


requests = st.sampled_from(
    [{}, CODEX, SUMMARY, {**CODEX, **SUMMARY}, {"include": ["reasoning.encrypted_content"]}]
)


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)) | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


def deltas_by_place(events: list[dict[str, Any]]) -> dict[tuple[str, int, int], str]:
    """Concatenated deltas by kind, item and part."""
    joined: dict[tuple[str, int, int], str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            part = event.get("content_index", event.get("summary_index", 0))
            place = (event["type"], event["output_index"], part)
            joined[place] = joined.get(place, "") + event["delta"]
    return joined


def final_texts(response: dict[str, Any]) -> dict[tuple[str, int, int], str]:
    """What the deltas must add up to."""
    found: dict[tuple[str, int, int], str] = {}
    for index, item in enumerate(response["output"]):
        for part, value in enumerate(item.get("content", [])):
            kind = value["type"]
            found[f"response.{kind}.delta", index, part] = value["refusal" if kind == "refusal" else "text"]
        for part, value in enumerate(item.get("summary", [])):
            found["response.reasoning_summary_text.delta", index, part] = value["text"]
        if "arguments" in item:
            found["response.function_call_arguments.delta", index, 0] = item["arguments"]
        if "input" in item:
            found["response.custom_tool_call_input.delta", index, 0] = item["input"]
    return {place: text for place, text in found.items() if text}


@given(turn=turns(), fields=requests, data=st.data())
@settings(deadline=None)
def test_any_cut_of_the_stream_gives_the_reply_that_is_not_streamed(
    turn: Turn, fields: dict[str, Any], data: st.DataObject
) -> None:
    call = call_of(**fields)
    events = events_of(streamed(call, list(chunks(turn, lambda text: data.draw(cuts(text))))))
    response = events[-1]["response"]
    assert response == msgspec.json.decode(dialect().reply(call, whole(turn)))
    assert deltas_by_place(events) == final_texts(response)
    assert [e["item"] for e in events if e["type"] == "response.output_item.done"] == response["output"]


ECHO_LEAVES_OUT = ("status", "id")
"""Fields that some clients do not send back."""


@given(turn=turns(), fields=requests, bare=st.booleans())
@settings(deadline=None)
def test_a_turn_that_comes_back_is_the_message_that_was_captured(
    turn: Turn, fields: dict[str, Any], bare: bool
) -> None:
    first = call_of(**fields)
    output = msgspec.json.decode(dialect().reply(first, whole(turn)))["output"]
    echoed = [
        {name: value for name, value in item.items() if not (bare and name in ECHO_LEAVES_OUT)}
        for item in output
    ]
    question = {"type": "message", "role": "user", "content": "How many files?"}
    results = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "done"}
        for item in output
        if "call_id" in item
    ]
    second = call_of(**fields, input=[question, *echoed, *results])
    assert second.messages[:1] == first.messages
    assert second.messages[1].decode() == captured(turn).decode()
    assert len(second.messages) == 2 + len(results)
    assert second.tools == first.tools


@given(text=texts, data=st.data(), spelling=st.sampled_from(["compact", "ascii", "blanks"]))
def test_freeform_input_is_unescaped_however_it_is_spelt_and_cut(
    text: str, data: st.DataObject, spelling: str
) -> None:
    spelt = {
        "compact": json.dumps({"input": text}, separators=(",", ":"), ensure_ascii=False),
        "ascii": json.dumps({"input": text}),
        "blanks": f' {{\n "input" :\t{json.dumps(text)}\n}} ',
    }[spelling]
    machine = FreeformInput()
    assert "".join([*map(machine.feed, data.draw(cuts(spelt))), machine.finish()]) == text


@given(raw=st.one_of(texts, st.text('{"input":\\u d8cx}', max_size=24)), data=st.data())
def test_freeform_input_does_not_depend_on_the_cut_and_can_always_be_sent(
    raw: str, data: st.DataObject
) -> None:
    at_once, in_pieces = FreeformInput(), FreeformInput()
    expected = at_once.feed(raw) + at_once.finish()
    assert "".join([*map(in_pieces.feed, data.draw(cuts(raw))), in_pieces.finish()]) == expected
    assert msgspec.json.decode(msgspec.json.encode(expected)) == expected
