"""What an engine adapter must do, and the pieces that all of them share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Protocol

import msgspec

from gateway.canonical import ChatCall
from gateway.engine import Answer, EngineObject

EngineKind = Literal["vllm", "sglang", "openai", "policy_server"]

TRUE = msgspec.Raw(b"true")
NULL = msgspec.Raw(b"null")

_REASONING = (b'"reasoning"', b'"reasoning_content"')
"""The two names it goes by in messages."""

_messages = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class Reading(Protocol):
    """One reply being read: gathered into an `Answer`, and given to the dialect in canonical names."""

    def whole(self, part: EngineObject) -> EngineObject:
        """Take in a reply that is not streamed; what the dialect sees. Raises `MalformedReply`."""
        ...

    def chunk(self, part: EngineObject) -> EngineObject | None:
        """Take in a chunk; what the dialect sees, or None where it holds nothing for a client."""
        ...


class EngineAdapter(Protocol):
    """One kind of engine."""

    def added(self, call: ChatCall) -> dict[str, Any]:
        """Fields that the gateway asks for on its own; a call must survive without any of them."""
        ...

    def body(self, call: ChatCall, *, model: str, without: Collection[str] = ()) -> bytes:
        """The engine's request. `without` names added fields that this engine refuses."""
        ...

    def reading(self, call: ChatCall, answer: Answer) -> Reading:
        """A fresh reading of a reply to `call` into `answer`."""
        ...


def with_usage(call: ChatCall) -> dict[str, Any]:
    """The client's stream options, and usage at the end."""
    options = call.sampling.get("stream_options")
    return {**(options if isinstance(options, dict) else {}), "include_usage": True}


def merged(
    call: ChatCall, added: dict[str, Any], *, model: str, without: Collection[str], dropped: Collection[str]
) -> dict[str, Any]:
    """The client's fields under the engine's model name, less `dropped`, plus `added` less `without`."""
    fields: dict[str, Any] = {name: raw for name, raw in call.fields.items() if name not in dropped}
    fields["model"] = model
    fields.update((name, value) for name, value in added.items() if name not in without)
    return fields


def with_reasoning_as(messages: msgspec.Raw, name: str | None) -> msgspec.Raw:
    """Messages whose reasoning is called `name`, or is left out where `name` is None."""
    data = bytes(messages)
    if not any(field in data for field in _REASONING if field != f'"{name}"'.encode()):
        return messages
    try:
        parsed = _messages.decode(messages)
    except msgspec.MsgspecError:
        return messages  # the engine will say what is wrong with them
    for message in parsed:
        content = message.pop("reasoning_content", None)
        reasoning = message.pop("reasoning", content)
        if name is not None and reasoning is not None:
            message[name] = reasoning
    return msgspec.Raw(msgspec.json.encode(parsed))


def lift_versions(fields: dict[str, msgspec.Raw]) -> None:
    """Put SGLang's `metadata.weight_version` where vLLM has it. Raises `MsgspecError`."""
    if (raw := fields.pop("metadata", None)) is None:
        return
    metadata = msgspec.json.decode(raw)
    if isinstance(metadata, dict):
        found = {name: metadata[name] for name in ("weight_version", "weight_versions") if name in metadata}
        fields.update((name, msgspec.Raw(msgspec.json.encode(value))) for name, value in found.items())


class PlainReading:
    """For engines whose replies already bear the canonical names."""

    def __init__(self, answer: Answer, *, hides_reasoning: bool = False) -> None:
        self._answer = answer
        self._hides_reasoning = hides_reasoning

    def whole(self, part: EngineObject) -> EngineObject:
        """All of it."""
        self._answer.add(part, "message")
        self._clean(part, "message")
        return part

    def chunk(self, part: EngineObject) -> EngineObject | None:
        """All of it."""
        self._answer.add(part, "delta")
        self._clean(part, "delta")
        return part

    def _clean(self, part: EngineObject, key: str) -> None:
        for choice in part.choices:
            choice.pop("weight_versions", None)
            choice.pop("weight_version", None)
            if self._hides_reasoning and key in choice:
                choice[key] = without_reasoning(choice[key])


def without_reasoning(message: msgspec.Raw) -> msgspec.Raw:
    """A message or delta as a client sees it that asked for no reasoning."""
    if b'"reasoning' not in bytes(message):
        return message
    fields = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    for name in ("reasoning", "reasoning_content"):
        fields.pop(name, None)
    return msgspec.Raw(msgspec.json.encode(fields))
