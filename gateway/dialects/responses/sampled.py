"""What of an engine's reply or chunk the client gets to see: the first choice, and usage."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.engine import EngineObject, MalformedReply


class Function(msgspec.Struct):
    """Parts of a call's name and arguments."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct):
    """A part of a tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Sampled(msgspec.Struct):
    """A message, or what a chunk adds to it."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None

    @property
    def thought(self) -> str | None:
        """Reasoning, whichever name the engine gives it."""
        return self.reasoning if self.reasoning is not None else self.reasoning_content


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


_sampled = msgspec.json.Decoder(Sampled | None)
_index = msgspec.json.Decoder(int)
_reason = msgspec.json.Decoder(str | None)
_usage = msgspec.json.Decoder(_Usage | None)


def sampled_of(engine: EngineObject, key: str) -> tuple[Sampled | None, str | None]:
    """The first choice's message (`key` = message) or delta, and its finish reason.

    Raises `MalformedReply`.
    """
    try:
        for choice in engine.choices:
            if _index.decode(choice.get("index", b"0")) == 0:
                return (
                    _sampled.decode(choice.get(key, b"null")),
                    _reason.decode(choice.get("finish_reason", b"null")),
                )
    except msgspec.MsgspecError as exc:
        raise MalformedReply(f"not a chat completion: {exc}") from exc
    return None, None


def usage_of(engine: EngineObject) -> dict[str, Any] | None:
    """Usage under the Responses protocol's names; None where the engine gives none here."""
    try:
        usage = _usage.decode(engine.fields.get("usage", b"null"))
    except msgspec.MsgspecError as exc:
        raise MalformedReply(f"not a chat completion: {exc}") from exc
    if usage is None:
        return None
    cached = (usage.prompt_tokens_details or {}).get("cached_tokens") or 0
    reasoning = (usage.completion_tokens_details or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
