"""Canonical messages in, the same with sampled turns put back out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gateway.restore.echoes import Echo, Prefix, cut, read
from gateway.restore.turns import SampledTurn, Turns

Arguments = Literal["sampled", "readable"]
"""Which tool arguments are put back: all, or only those that are JSON objects.

vLLM and SGLang parse the arguments of past calls and answer 400 when they cannot, on every later call
of the conversation; so by default a broken call keeps what the client made of it.
"""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Replaced:
    """A turn that was put back."""

    index: int
    """In the restored messages."""
    step_id: str
    client: bytes | None
    """The turn as the client sent it (its first part, where it was split); none where it was left out."""
    exact: bool = True
    """False where a broken tool call kept the client's arguments."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Messages with sampled turns put back."""

    messages: list[bytes]
    replaced: list[Replaced]

    def array(self) -> msgspec.Raw:
        """The messages as one JSON list."""
        return msgspec.Raw(b"[" + b",".join(self.messages) + b"]")


def restore(messages: Sequence[bytes], turns: Turns, *, arguments: Arguments = "readable") -> Restored:
    """Put back every sampled turn of `turns` that `messages` echo.

    A turn split over several messages is joined; one that showed nothing and was left out returns to
    where it stood; tool results get the engine's ids. A turn that lost a tool call, or that could be
    one of several, stays as the client sent it.
    """
    if not turns.all:
        return Restored(list(messages), [])
    return _Restoring(messages, turns, arguments).run()


class _Restoring:
    def __init__(self, messages: Sequence[bytes], turns: Turns, arguments: Arguments) -> None:
        self._raw = messages
        self._echoes = [read(message) for message in messages]
        self._turns = turns
        self._arguments = arguments
        said = [echo for echo in self._echoes if echo.role == "assistant"]
        self._sent = {cut(call.id): call.function.arguments for echo in said for call in echo.calls}
        self._times = Counter(echo.text for echo in said if not echo.calls)
        self._engine_ids: dict[str, str] = {}
        self._called: set[str] = set()
        """Turns with tool calls that are back."""
        self._out = Restored([], [])
        self._prefix = Prefix()

    def run(self) -> Restored:
        for raw, echo in zip(self._raw, self._echoes, strict=True):
            match echo.role:
                case "assistant":
                    self._assistant(raw, echo)
                case "tool":
                    self._add(_with_id(raw, self._engine_ids.get(cut(echo.tool_call_id or ""))))
                case _:
                    self._other(raw)
        return self._out

    def _add(self, message: bytes) -> None:
        self._out.messages.append(message)
        self._prefix.add(message)

    def _other(self, raw: bytes) -> None:
        turn = self._turns.left_out(self._prefix) if self._out.messages else None
        if turn is not None:
            self._out.replaced.append(Replaced(len(self._out.messages), turn.step_id, None))
            self._add(turn.message)
        self._add(raw)

    def _assistant(self, raw: bytes, echo: Echo) -> None:
        turn = self._turns.find(echo, raw, self._prefix, times=self._times[echo.text])
        if turn is None or not turn.seen <= self._sent.keys():
            self._add(raw)
            return
        if turn.ids:
            if turn.step_id in self._called:
                return
            self._called.add(turn.step_id)
            self._engine_ids.update(turn.ids)
        message, exact = _message(turn, self._sent, self._arguments)
        if message != raw:
            self._out.replaced.append(Replaced(len(self._out.messages), turn.step_id, raw, exact))
        self._add(message)


def _message(turn: SampledTurn, sent: dict[str, str | None], arguments: Arguments) -> tuple[bytes, bool]:
    """The turn's message, and whether it is wholly as sampled."""
    calls = read(turn.message).calls if turn.ids and arguments == "readable" else []
    broken = [place for place, call in enumerate(calls) if not _readable(call.function.arguments)]
    if not broken:
        return turn.message, True
    fields: dict[str, Any] = msgspec.json.decode(turn.message)
    for place in broken:
        own = sent.get(turn.ids[place][0])
        fields["tool_calls"][place]["function"]["arguments"] = own if own and _readable(own) else "{}"
    return msgspec.json.encode(fields), False


def _readable(arguments: str | None) -> bool:
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return False
    return True


def _with_id(raw: bytes, engine_id: str | None) -> bytes:
    """A tool message that answers to the engine's id."""
    if engine_id is None:
        return raw
    fields: dict[str, Any] = dict(_fields.decode(raw))
    if msgspec.json.decode(fields["tool_call_id"]) == engine_id:
        return raw
    fields["tool_call_id"] = engine_id
    return msgspec.json.encode(fields)
