"""Streamed replies: golden events, and the same Message however the engine cuts its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engine import EngineObject, MalformedReply
from tests.unit.gateway.dialects.messages.answers import SAMPLED, Sampled, assemble
from tests.unit.gateway.dialects.messages.freeze import streamed
from tests.unit.gateway.dialects.messages.samples import GOLDEN, STOPS, dialect

STREAMS = sorted((GOLDEN / "streams").glob("*.chunks.jsonl"))


def feed_all(chunks: list[EngineObject]) -> bytes:
    messages = dialect()
    stream = messages.stream(messages.parse(STOPS))
    return b"".join(map(stream.feed, chunks)) + stream.finish()


def whole(sampled: Sampled) -> dict[str, Any]:
    messages = dialect()
    reply = EngineObject.parse(json.dumps(sampled.reply()).encode())
    found: dict[str, Any] = json.loads(messages.reply(messages.parse(STOPS), reply))
    return found


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]
    return {**message, "id": "", "content": content}


@pytest.mark.parametrize("path", STREAMS, ids=lambda p: p.name.removesuffix(".chunks.jsonl"))
def test_chunks_become_the_golden_events(path: Path) -> None:
    assert streamed(path) == path.with_name(path.name.replace(".chunks.jsonl", ".sse")).read_bytes()


@given(SAMPLED, st.lists(st.booleans(), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_chunking_gives_the_message_of_the_whole_reply(sampled: Sampled, cuts: list[bool]) -> None:
    assert without_ids(assemble(feed_all(sampled.chunks(cuts)))) == without_ids(whole(sampled))


@given(SAMPLED)
@settings(max_examples=50, deadline=None)
def test_every_text_delta_is_passed_on_with_its_own_chunk(sampled: Sampled) -> None:
    messages = dialect()
    stream = messages.stream(messages.parse(STOPS))
    shown = ""
    for chunk in sampled.chunks([True]):
        # By lines as Unicode sees them: the strictest cut that a client may make.
        lines = stream.feed(chunk).decode().splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        shown += "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        delta = json.loads(bytes(chunk.choices[0]["delta"])) if chunk.choices else {}
        if delta.get("content", "").strip():
            assert shown == sampled.content[: len(shown)]
            assert shown.endswith(delta["content"])
    assert shown == (sampled.content if sampled.content.strip() else "")


def test_text_and_thinking_between_tool_calls_get_blocks_of_their_own() -> None:
    def chunk(**delta: Any) -> EngineObject:
        return EngineObject.parse(json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode())

    def tool(index: int) -> EngineObject:
        return chunk(tool_calls=[{"index": index, "function": {"name": "f", "arguments": "{}"}}])

    found = assemble(
        feed_all(
            [
                chunk(content="A"),
                tool(0),
                chunk(content=" "),
                chunk(content="B"),
                tool(1),
                chunk(reasoning="C"),
            ]
        )
    )
    kinds = [(b["type"], b.get("text", b.get("thinking"))) for b in found["content"]]
    expected = [("text", "A"), ("tool_use", None), ("text", " B"), ("tool_use", None), ("thinking", "C")]
    assert kinds == expected


def test_tool_calls_mixed_up_with_one_another_are_refused_rather_than_lost() -> None:
    def part(index: int) -> EngineObject:
        delta = {"tool_calls": [{"index": index, "function": {"name": "f", "arguments": "{"}}]}
        return EngineObject.parse(json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode())

    with pytest.raises(MalformedReply, match="went back"):
        feed_all([part(0), part(1), part(0)])


def test_tool_ids_are_alphanumeric_short_and_unique() -> None:
    from gateway.dialects.messages import Messages

    messages = Messages()
    ids = []
    for _ in range(50):
        call = messages.parse(STOPS)
        ids += [call.tool_id(0), call.tool_id(1)]
        assert call.seen_ids() == ids[-2:]
    assert len(set(ids)) == 100
    assert all(i.isalnum() and i.isascii() and len(i) <= 40 for i in ids)


def test_broken_arguments_of_a_whole_reply_are_wrapped() -> None:
    sampled = Sampled("", "", [("f", '{"a": "b')], "length")
    assert whole(sampled)["content"][0]["input"] == {"__unparsedToolInput": {"raw": '{"a": "b', "len": 8}}
    assert whole(sampled)["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(
    ("finish", "tools", "stop", "expected"),
    [
        ("stop", [], None, ("end_turn", None)),
        ("stop", [], "END", ("stop_sequence", "END")),
        ("stop", [], 151645, ("end_turn", None)),
        ("stop", [("f", "{}")], None, ("tool_use", None)),
        ("tool_calls", [("f", "{}")], None, ("tool_use", None)),
        ("length", [("f", "{}")], None, ("max_tokens", None)),
        ("content_filter", [], None, ("refusal", None)),
        ("abort", [], None, ("end_turn", None)),
    ],
)
def test_finish_reason_in_anthropics_words(
    finish: str, tools: list[tuple[str, str]], stop: Any, expected: tuple[str, str | None]
) -> None:
    body = Sampled("", "x", tools, finish).reply()
    body["choices"][0]["stop_reason"] = stop
    messages = dialect()
    reply = json.loads(messages.reply(messages.parse(STOPS), EngineObject.parse(json.dumps(body).encode())))
    assert (reply["stop_reason"], reply["stop_sequence"]) == expected


def test_signature_is_a_function_of_the_thinking() -> None:
    first, again, other = (whole(Sampled(text, "x"))["content"][0]["signature"] for text in ("a", "a", "b"))
    assert first == again != other
