"""What the engine says in a reply or a chunk, as far as a Message shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from gateway.dialects.messages.call import MessagesCall
from gateway.engine import EngineObject, MalformedReply

T = TypeVar("T")


class Function(msgspec.Struct):
    """A call, or a part of one."""

    name: str | None = None
    arguments: str | None = None


class ToolPart(msgspec.Struct):
    """A tool call, or a part of one; `index` says of which."""

    index: int | None = None
    function: Function | None = None


class Part(msgspec.Struct):
    """A message, or a part of one."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolPart] | None = None

    @property
    def thinking(self) -> str:
        """Reasoning, whichever name the engine gives it."""
        return (self.reasoning if self.reasoning is not None else self.reasoning_content) or ""

    @property
    def text(self) -> str:
        """What is said, be it a refusal."""
        return (self.content or "") + (self.refusal or "")


def part_of(engine: EngineObject, key: str) -> Part:
    """The first choice's message (`key` = message) or delta; a Message has one answer."""
    for choice in engine.choices:
        if read(choice, "index", int) in {None, 0}:
            return read(choice, key, Part) or Part()
    return Part()


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


@dataclass(slots=True)
class Ending:
    """Why the answer ended and what it took, as known so far."""

    call: MessagesCall
    finish_reason: str = ""
    matched: str | None = None
    """The stop string that the engine says it hit."""
    calls_tools: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    model: str = ""

    def add(self, engine: EngineObject) -> None:
        """Take in a reply or a chunk."""
        fields = engine.fields
        self.model = self.model or read(fields, "model", str) or ""
        if ids := bytes(fields.get("prompt_token_ids", b"")).strip(b"[] \n"):
            # Counting commas costs nothing beside decoding a long prompt's ids.
            self.prompt_tokens = ids.count(b",") + 1 if ids != b"null" else self.prompt_tokens
        if usage := read(fields, "usage", _Usage):
            self.prompt_tokens = usage.prompt_tokens or self.prompt_tokens
            self.output_tokens = usage.completion_tokens or self.output_tokens
            details = usage.prompt_tokens_details
            self.cached_tokens = (details.cached_tokens if details else None) or self.cached_tokens
        for choice in engine.choices:
            if read(choice, "index", int) in {None, 0}:
                self.finish_reason = read(choice, "finish_reason", str) or self.finish_reason
                for name in ("stop_reason", "matched_stop"):
                    matched = read(choice, name, str | int)  # type: ignore[arg-type]
                    if matched in self.call.stop_sequences:
                        self.matched = str(matched)

    @property
    def stop_reason(self) -> str:
        """In Anthropic's words."""
        match self.finish_reason:
            case "length":
                return "max_tokens"
            case "content_filter":
                return "refusal"
        if self.calls_tools:
            return "tool_use"
        return "end_turn" if self.matched is None else "stop_sequence"

    @property
    def stop_sequence(self) -> str | None:
        """The stop string hit, where that ended the answer."""
        return self.matched if self.stop_reason == "stop_sequence" else None

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens: `input_tokens` are those not read from the engine's prefix cache."""
        return {
            "input_tokens": max(self.prompt_tokens - self.cached_tokens, 0),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
        }

    def message(self, content: list[dict[str, Any]], *, ended: bool) -> dict[str, Any]:
        """The Message: whole, or as it stands at the start of a stream."""
        return {
            "id": self.call.message_id(),
            "type": "message",
            "role": "assistant",
            "model": self.call.model if self.call.model != "default" else self.model,
            "content": content,
            "stop_reason": self.stop_reason if ended else None,
            "stop_sequence": self.stop_sequence if ended else None,
            "usage": self.usage,
        }


def read(fields: dict[str, msgspec.Raw], name: str, expected: type[T]) -> T | None:
    """Field `name` of the engine's object, if any. Raises `MalformedReply`."""
    raw = fields.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=expected)
    except msgspec.MsgspecError as exc:
        raise MalformedReply(f"its `{name}` cannot be read: {exc}") from exc
