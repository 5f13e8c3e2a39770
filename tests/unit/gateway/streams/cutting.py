"""An engine's bytes cut anywhere and with anything between their events, and one exchange over them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from hypothesis import strategies as st

from agentworld.contract.events import StepRequest
from gateway.asgi import Message
from gateway.canonical import ChatCall
from gateway.capture import Arrival, captured_steps
from gateway.dialects import Dialect
from gateway.engine import Answer
from gateway.engines import EngineAdapter
from gateway.exchange import Exchange
from gateway.upstreams.reply import UpstreamReply

_VOLATILE = frozenset({"event_id", "step_id", "event_time_ms", "latency_ms", "first_token_ms"})


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

    def __init__(self, parts: Sequence[bytes], adapter: EngineAdapter) -> None:
        self._parts = parts
        self._adapter = adapter

    @asynccontextmanager
    async def ask(
        self, call: ChatCall, answer: Answer, *, authorization: str, affinity: str
    ) -> AsyncIterator[UpstreamReply]:
        http: Any = CutReply(self._parts)
        yield UpstreamReply(http, self._adapter.reading(call, answer))


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def every_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


NOISE = [
    b": keep-alive\n\n",
    b": OPENROUTER PROCESSING\n\n",
    b":\n",
    b"\n",
    b"event: ping\n\n",
    b"retry: 9\n",
]
"""What may stand between two events and means nothing."""


@st.composite
def noisy(draw: st.DrawFn, events: Sequence[bytes]) -> bytes:
    """The events with comments between them, with or without blanks behind `data:`, in LF or CRLF."""
    between = st.lists(st.sampled_from(NOISE), max_size=2)
    parts = []
    for event in events:
        parts += draw(between)
        parts.append(event.replace(b"data: ", b"data:", 1) if draw(st.booleans()) else event)
    data = b"".join(parts)
    return data.replace(b"\n", b"\r\n") if draw(st.booleans()) else data


def outcome(
    parts: Sequence[bytes], call: ChatCall, dialect: Dialect, adapter: EngineAdapter
) -> tuple[bytes, list[dict[str, Any]]]:
    """What the client got, and the steps without their times and ids."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> Exchange:
        upstream: Any = CutUpstream(parts, adapter)
        exchange = Exchange(dialect, call, upstream, send, step_id="s", started=time.perf_counter())
        await exchange.run(authorization="")
        await (exchange.fail(exchange.failure) if exchange.failure else exchange.finish())
        return exchange

    exchange = asyncio.run(run())
    request = StepRequest(protocol=dialect.protocol, model="m", stream=True)
    arrival = Arrival("s", "t", "p", "default", None, 0, 0.0, request)
    steps = captured_steps(
        arrival, call, exchange.answer, exchange.ending(None), (), engine="e", source="gateway/0"
    )
    return b"".join(message.get("body", b"") for message in sent), [_described(step) for step, _ in steps]


def _described(step: Any) -> dict[str, Any]:
    values = {name: getattr(step, name) for name in step.__struct_fields__ if name not in _VOLATILE}
    return {name: bytes(value) if isinstance(value, msgspec.Raw) else value for name, value in values.items()}
