"""Every protocol over every engine: however the engine's bytes are cut, the step is what was sampled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.canonical import ChatCall
from gateway.dialects import ChatCompletions, Completions, Dialect, Messages, Responses
from gateway.engines import EngineKind
from tests.unit.gateway.streams.client_streams import STREAMED, ClientReader
from tests.unit.gateway.streams.cutting import cut, every_byte, noisy, outcome
from tests.unit.gateway.streams.engine_streams import DONE, KINDS, Turn, adapter_for, chunks_of, event

PIECES = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
    | st.sampled_from([" ", "\n\n", "é😀", "\r\n", "data: ", "[DONE]", "\u2028", "\\", '"}']),
    max_size=4,
).map(tuple)
ARGUMENTS = st.lists(st.sampled_from(['{"a', '": "', "ß😀", '\\n"', "}", ", ", '"b": [1]']), max_size=4)
CALLS = st.lists(st.tuples(st.sampled_from(["read", "write"]), ARGUMENTS.map(tuple)), max_size=3).map(tuple)
TURNS = st.builds(Turn, PIECES, PIECES, CALLS)
TEXTS = st.builds(Turn, text=PIECES)
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "write")]
FLAT = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in ("read", "write")]
OWN = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "write")]
WITH_TOOLS: dict[str, Any] = {
    "chat/completions": {"tools": TOOLS},
    "responses": {"tools": FLAT},
    "messages": {"tools": OWN},
    "completions": {},
}


def counted(number: int = 0) -> str:
    """The UUIDv7 that every id of an answer is made of here."""
    return "01890000-0000-7000-8000-000000000000"


SPOKEN: dict[str, Dialect] = {
    "chat/completions": ChatCompletions(),
    "responses": Responses(new_id=counted),
    "messages": Messages(new_id=counted),
    "completions": Completions(),
}
HAVE_CHOICES = {"chat/completions", "completions"}
"""Protocols that have n and logprobs."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", SPOKEN)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_gives_the_sampled_step_and_the_same_text(
    path: str, kind: EngineKind, data: st.DataObject
) -> None:
    is_chat = path != "completions"
    several = path in HAVE_CHOICES
    turns = data.draw(st.lists(TURNS if is_chat else TEXTS, min_size=1, max_size=3 if several else 1))
    wants_logprobs = several and data.draw(st.booleans())
    chunks = chunks_of(kind, turns, is_chat=is_chat)
    ascii_only = data.draw(st.booleans())
    events = [event(chunk, ascii_only=ascii_only) for chunk in chunks] + [DONE]
    body = STREAMED[path] | WITH_TOOLS[path]
    if several:
        body = body | {"n": len(turns), "logprobs": (True if is_chat else 0) if wants_logprobs else None}

    def call() -> ChatCall:
        return SPOKEN[path].parse(json.dumps(body).encode())

    dialect, adapter = SPOKEN[path], adapter_for(kind, is_chat=is_chat)
    clean = b"".join(events)
    sent, steps = outcome([clean], call(), dialect, adapter)
    other = data.draw(noisy(events))
    places = data.draw(st.lists(st.integers(0, 20_000), max_size=60))
    parts = every_byte(other) if data.draw(st.booleans()) else cut(other, places)
    assert outcome(parts, call(), dialect, adapter) == (sent, steps)

    assert [step["status"] for step in steps] == ["ok"] * len(turns)
    reader = ClientReader(path)
    reader.feed(sent)
    assert reader.ended
    for index, (turn, step) in enumerate(zip(turns, steps, strict=True)):
        check_step(turn, step, index, with_ids=kind != "openai" or not is_chat)
        check_client(reader, turn, index, path)
        assert reader.logprobs.get(index, []) == (turn.logprobs if wants_logprobs else [])


def check_step(turn: Turn, step: dict[str, Any], index: int, *, with_ids: bool) -> None:
    """All that was sampled stands in the step."""
    message = json.loads(step["message"])
    assert (message.get("content") or "") == "".join(turn.text)
    assert message.get("reasoning", "") == "".join(turn.reasoning)
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())] == [
        (name, "".join(pieces)) for name, pieces in turn.calls
    ]
    assert (step["choice_index"], step["finish_reason"]) == (index, turn.finish_reason)
    assert step["response_logprobs"] == turn.logprobs
    assert step["response_ids"] == (turn.ids(index) if with_ids else [])
    if with_ids:
        assert (step["token_source"], step["integrity"]) == ("engine", [])
    else:
        assert (step["token_source"], step["trainable"]) == ("none", False)


def check_client(reader: ClientReader, turn: Turn, index: int, path: str) -> None:
    """All that was sampled is with the client."""

    def shown(text: str) -> str:
        # Anthropic's clients refuse a block of blanks alone.
        return "" if path == "messages" and not text.strip() else text

    assert reader.joined("text", index) == shown("".join(turn.text))
    assert reader.joined("reasoning", index) == shown("".join(turn.reasoning))
    assert reader.calls(index) == [(name, "".join(pieces)) for name, pieces in turn.calls]
