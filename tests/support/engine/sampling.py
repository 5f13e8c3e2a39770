"""A turn as sampled tokens: what each adds to the reply, and its log-probability. Pure."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.support.engine.tokens import THINK_CLOSE, THINK_OPEN, TURN_CLOSE, call_frame, encode

Delta = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Use:
    """A call of a tool. `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply of the model."""

    kind: Literal["turn", "side"]
    """`side`: titles, summaries and the like, outside the main conversation."""
    text: str
    calls: Sequence[Use] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token."""

    token_id: int
    logprob: float
    delta: Delta
    """What it adds to the message, in vLLM's words; empty for half a character and for marks."""


def sample(turn: Turn, *, seed: str, call_ids: Sequence[str]) -> list[Token]:
    """The tokens of `turn`. Log-probabilities are drawn from `seed` and use all digits of a double."""
    pairs = list(_pairs(turn, call_ids))
    return [Token(token_id, _logprob(seed, place), delta) for place, (token_id, delta) in enumerate(pairs)]


def _pairs(turn: Turn, call_ids: Sequence[str]) -> Iterator[tuple[int, Delta]]:
    if turn.reasoning:
        yield from _silent(encode(THINK_OPEN))
        yield from _spoken(turn.reasoning, "reasoning")
        yield from _silent(encode(THINK_CLOSE))
    yield from _spoken(turn.text, "content")
    for index, (use, call_id) in enumerate(zip(turn.calls, call_ids, strict=True)):
        (*before, last), after = call_frame(use.name)
        yield from _silent(before)
        function = {"name": use.name, "arguments": ""}
        yield (
            last,
            {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]},
        )
        for token_id, delta in _spoken(use.arguments, "arguments"):
            yield token_id, {"tool_calls": [{"index": index, "function": delta}]} if delta else {}
        yield from _silent(after)
    yield TURN_CLOSE, {}


def _silent(ids: Sequence[int]) -> Iterator[tuple[int, Delta]]:
    return ((token_id, {}) for token_id in ids)


def _spoken(text: str, field: str) -> Iterator[tuple[int, Delta]]:
    for character in text:
        *before, last = encode(character)
        yield from ((token_id, {}) for token_id in before)
        yield last, {field: character}


def _logprob(seed: str, place: int) -> float:
    digest = hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8).digest()
    return -3.0 * int.from_bytes(digest, "big") / 2**64


def message_of(tokens: Sequence[Token]) -> dict[str, Any]:
    """The deltas put together, as a reply without streaming has them."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    for token in tokens:
        for name in ("content", "reasoning"):
            if name in token.delta:
                message[name] = (message.get(name) or "") + token.delta[name]
        for part in token.delta.get("tool_calls", ()):
            if "id" in part:
                calls[part["index"]] = copy.deepcopy({k: v for k, v in part.items() if k != "index"})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    if calls:
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    return message
