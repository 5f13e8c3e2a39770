"""However the engine's bytes are cut, the step and the client's text are the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.contract.errors import InvalidInput
from gateway.canonical import ChatCall
from gateway.dialects import ChatCompletions, Dialect, Messages, Responses
from gateway.engines import adapter_of
from gateway.sse import SseParser
from tests.unit.gateway.scripted_engine import TOOL, sse_bytes, stream_chunks
from tests.unit.gateway.streams.cutting import cut, outcome

PLAIN = sse_bytes(stream_chunks())
SPACED = PLAIN.replace(b"\n", b"\r\n").replace(b"data: {", b": ping\r\ndata:{")
TOOLS = sse_bytes(stream_chunks(tool_calls=[TOOL]))
TWO = sse_bytes(stream_chunks(n=2))
BROKEN = sse_bytes(stream_chunks()[:3], done=False) + b'data: {"error": {"message": "away"}}\n\n'
UNICODE = PLAIN.replace(b"lo ", "löß😀".encode())


@settings(max_examples=120, deadline=None)
@given(
    data=st.sampled_from([PLAIN, SPACED, TOOLS, TWO, BROKEN, UNICODE]),
    places=st.lists(st.integers(0, 10_000), max_size=40),
    usage=st.booleans(),
    logprobs=st.booleans(),
)
def test_any_cut_gives_the_same_step_and_the_same_text(
    data: bytes, places: list[int], usage: bool, logprobs: bool
) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "model": "m"}
    if usage:
        body["stream_options"] = {"include_usage": True}
    if logprobs:
        body["logprobs"] = True
    if data is TWO:
        body["n"] = 2

    def call() -> ChatCall:
        return ChatCompletions().parse(json.dumps(body).encode())

    dialect, adapter = ChatCompletions(), adapter_of("vllm")
    assert outcome(cut(data, places), call(), dialect, adapter) == outcome([data], call(), dialect, adapter)


def numbered(number: int = 0) -> str:
    """The UUIDv7 that every id of an answer is made of here."""
    return "01890000-0000-7000-8000-000000000000"


OTHERS: dict[Dialect, dict[str, Any]] = {
    Responses(new_id=numbered): {"input": "hi", "stream": True},
    Messages(new_id=numbered): {"messages": [{"role": "user", "content": "hi"}], "stream": True},
}


@settings(max_examples=80, deadline=None)
@given(
    dialect=st.sampled_from(list(OTHERS)),
    data=st.sampled_from([PLAIN, SPACED, TOOLS, BROKEN, UNICODE]),
    places=st.lists(st.integers(0, 10_000), max_size=40),
)
def test_any_cut_gives_the_same_in_every_protocol(dialect: Dialect, data: bytes, places: list[int]) -> None:
    def call() -> ChatCall:
        return dialect.parse(json.dumps(OTHERS[dialect]).encode())

    adapter = adapter_of("vllm")
    assert outcome(cut(data, places), call(), dialect, adapter) == outcome([data], call(), dialect, adapter)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_the_parser_gives_the_same_events_for_any_cut_of_any_bytes(data: bytes, places: list[int]) -> None:
    def events(parts: Sequence[bytes]) -> list[bytes]:
        parser = SseParser()
        return [event for part in parts for event in parser.feed(part)]

    assert events(cut(data, places)) == events([data])


def parsed(body: bytes) -> ChatCall | None:
    """The call, or None where it is refused with a 400."""
    try:
        return ChatCompletions().parse(body)
    except InvalidInput as exc:
        if exc.status != 400:
            raise
        return None


@given(st.binary(max_size=300))
def test_any_body_is_a_call_or_a_clear_error(body: bytes) -> None:
    parsed(body)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='aé😀"\\\n\u2028\ud800', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["messages", "n", "stream", "model", "tools", "stream_options", "logprobs", "return_token_ids", "x"]


@given(st.dictionaries(st.sampled_from(NAMES), json_values))
def test_any_json_object_is_a_call_that_can_be_asked_and_captured_or_a_clear_error(
    body: dict[str, Any],
) -> None:
    call = parsed(json.dumps({"messages": [{"role": "user"}]} | body).encode())
    if call is not None:
        msgspec.json.decode(adapter_of("vllm").body(call, model="m"))
        msgspec.json.encode(call.sampling)
