"""However the engine's bytes are cut, the step and the client's text are the same."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import StepRequest
from gateway.asgi import Message
from gateway.canonical import ChatCall
from gateway.capture import Arrival, captured_steps
from gateway.dialects import ChatCompletions, Dialect, Messages, Responses
from gateway.engine import Answer
from gateway.engines import adapter_of
from gateway.exchange import Exchange
from gateway.sse import SseParser
from gateway.upstreams.reply import UpstreamReply
from tests.unit.gateway.scripted_engine import TOOL, sse_bytes, stream_chunks


class CutReply:
    """An engine's stream in the given parts."""

    is_stream = True

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts

    async def parts(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


class CutUpstream:
    """An upstream that answers with `CutReply`."""

    name = "engine"

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts

    @asynccontextmanager
    async def ask(
        self, call: ChatCall, answer: Answer, *, authorization: str, affinity: str
    ) -> AsyncIterator[UpstreamReply]:
        http: Any = CutReply(self._parts)
        yield UpstreamReply(http, adapter_of("vllm").reading(call, answer))


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def outcome(
    parts: Sequence[bytes], call: ChatCall, dialect: Dialect | None = None
) -> tuple[bytes, list[dict[str, Any]]]:
    """What the client got, and the steps without their times and ids."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> Exchange:
        upstream: Any = CutUpstream(parts)
        spoken = dialect or ChatCompletions()
        exchange = Exchange(spoken, call, upstream, send, step_id="s", started=time.perf_counter())
        await exchange.run(authorization="")
        await (exchange.fail(exchange.failure) if exchange.failure else exchange.finish())
        return exchange

    exchange = asyncio.run(run())
    request = StepRequest(protocol="chat_completions", model="m", stream=True)
    arrival = Arrival("s", "t", "p", "default", None, 0, 0.0, request)
    steps = captured_steps(
        arrival, call, exchange.answer, exchange.ending(None), (), engine="e", source="gateway/0"
    )
    volatile = {"event_id", "step_id", "event_time_ms", "latency_ms", "first_token_ms"}
    described = [
        {
            k: bytes(v) if isinstance(v, msgspec.Raw) else v
            for k, v in fields(step).items()
            if k not in volatile
        }
        for step, _ in steps
    ]
    return b"".join(message.get("body", b"") for message in sent), described


def fields(step: Any) -> dict[str, Any]:
    return {name: getattr(step, name) for name in step.__struct_fields__}


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

    assert outcome(cut(data, places), call()) == outcome([data], call())


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

    assert outcome(cut(data, places), call(), dialect) == outcome([data], call(), dialect)


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
