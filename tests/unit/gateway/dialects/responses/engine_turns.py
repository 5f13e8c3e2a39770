"""Sampled turns as an engine would tell them: whole, or in chunks cut anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.engine import Answer, EngineObject


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str
    id: str


@dataclass(frozen=True)
class Turn:
    reasoning: str = ""
    content: str | None = None
    calls: tuple[Call, ...] = ()
    finish_reason: str = "stop"
    refusal: str = ""
    usage: dict[str, Any] | None = field(
        default_factory=lambda: {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 64},
        }
    )


Cut = Callable[[str], list[str]]
"""How a text is cut into deltas."""


def in_words(text: str) -> list[str]:
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + [words[-1]]


def in_fives(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def engine_object(fields: dict[str, Any]) -> EngineObject:
    return EngineObject.parse(msgspec.json.encode(fields))


def whole(turn: Turn) -> EngineObject:
    message: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if turn.reasoning:
        message["reasoning"] = turn.reasoning
    if turn.refusal:
        message["refusal"] = turn.refusal
    if turn.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in turn.calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": turn.finish_reason,
        "token_ids": [1, 2, 3],
        "logprobs": {"content": []},
    }
    return engine_object(
        {"id": "chatcmpl-1", "prompt_token_ids": [1], "choices": [choice], "usage": turn.usage}
    )


def chunks(turn: Turn, cut: Cut = in_words) -> Iterator[EngineObject]:
    """vLLM's order: role, reasoning, text, calls, finish reason, usage."""
    yield _chunk({"role": "assistant", "content": None if turn.content is None else ""})
    for name, text in (("reasoning", turn.reasoning), ("content", turn.content), ("refusal", turn.refusal)):
        for piece in cut(text) if text else ():
            yield _chunk({name: piece})
    for index, call in enumerate(turn.calls):
        head = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name}}
        yield _chunk({"tool_calls": [head]})
        for piece in cut(call.arguments) if call.arguments else ():
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk({}, turn.finish_reason)
    if turn.usage is not None:
        yield engine_object({"id": "chatcmpl-1", "choices": [], "usage": turn.usage})


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> EngineObject:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "token_ids": [1]}
    return engine_object({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]})


def captured(turn: Turn) -> bytes:
    """The canonical message that the gateway stores of this turn."""
    answer = Answer()
    answer.add(whole(turn), "message")
    message = answer.choices[0].message
    assert message is not None
    return bytes(message)
