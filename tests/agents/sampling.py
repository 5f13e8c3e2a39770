"""A turn as sampled tokens: what each adds to the reply, and its log-probability. Pure.

Ids are those of the quickstart engine's vocabulary: bytes, and special tokens for turns and tool calls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recipes.quickstart.engine.template import call_text, render
from recipes.quickstart.engine.vocabulary import CALL_CLOSE, CALL_OPEN, IM_END, encode
from tests.agents.policy import Turn, text_of

_THINK_OPEN, _THINK_CLOSE = "<think>\n", "\n</think>\n\n"
_ROLES = {"system", "developer", "user", "assistant", "tool"}

Delta = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token."""

    token_id: int
    logprob: float
    delta: Delta
    """What it adds to the message, in vLLM's words; empty for half a character and for marks."""


def prompt_ids(body: Mapping[str, Any]) -> list[int]:
    """The request through the chat template."""
    return render([_plain(message) for message in body["messages"]], body.get("tools"))


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    role, text = message.get("role"), text_of(message.get("content"))
    plain: dict[str, Any] = {"role": role if role in _ROLES else "user", "content": text}
    if role == "assistant":
        if thought := message.get("reasoning") or message.get("reasoning_content"):
            plain["content"] = f"{_THINK_OPEN}{thought}{_THINK_CLOSE}{text}"
        plain["tool_calls"] = message.get("tool_calls") or []
    return plain


def sample(turn: Turn, *, seed: str, call_ids: Sequence[str]) -> list[Token]:
    """The tokens of `turn`. Log-probabilities are drawn from `seed` and use all digits of a double."""
    pairs = list(_pairs(turn, call_ids))
    return [Token(token_id, _logprob(seed, place), delta) for place, (token_id, delta) in enumerate(pairs)]


def _pairs(turn: Turn, call_ids: Sequence[str]) -> Iterator[tuple[int, Delta]]:
    if turn.reasoning:
        yield from _marks(_THINK_OPEN)
        yield from _spoken(turn.reasoning, field="reasoning")
        yield from _marks(_THINK_CLOSE)
    yield from _spoken(turn.text, field="content")
    for index, (use, call_id) in enumerate(zip(turn.calls, call_ids, strict=True)):
        head, _, tail = call_text(use.name, "\0").partition("\0")
        named = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": use.name, "arguments": ""},
        }
        yield CALL_OPEN, {}
        *before, last = encode(head)
        yield from ((token_id, {}) for token_id in before)
        yield last, {"tool_calls": [named]}
        for token_id, delta in _spoken(use.arguments, field="arguments"):
            yield token_id, {"tool_calls": [{"index": index, "function": delta}]} if delta else {}
        yield from _marks(tail)
        yield CALL_CLOSE, {}
    yield IM_END, {}


def _marks(text: str) -> Iterator[tuple[int, Delta]]:
    return ((token_id, {}) for token_id in encode(text))


def _spoken(text: str, *, field: str) -> Iterator[tuple[int, Delta]]:
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
                calls[part["index"]] = json.loads(json.dumps({k: v for k, v in part.items() if k != "index"}))
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    if calls:
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    return message
