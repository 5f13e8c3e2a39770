"""Text completions, as vLLM and SGLang answer them: another shape than chat, the same ids and logprobs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from gateway.canonical import ChatCall
from gateway.engine import Answer, EngineObject, MalformedReply
from gateway.engines.base import NULL, TRUE, Reading, lift_versions, merged, with_usage

_NOT_CHAT = frozenset({"text", "logprobs", "prompt_token_ids"})


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class CompletionsAdapter:
    """`/completions`: logprobs is a number there, and the prompt's ids stand in the first choice."""

    def __init__(self, *, logprobs: bool = True) -> None:
        self._logprobs = logprobs

    def added(self, call: ChatCall) -> dict[str, Any]:
        """Ids, logprobs, usage."""
        added: dict[str, Any] = {"return_token_ids": TRUE}
        if self._logprobs and not call.wants_logprobs:
            added["logprobs"] = 0
        if call.stream:
            added["stream_options"] = with_usage(call)
        return added

    def body(self, call: ChatCall, *, model: str, without: Collection[str] = ()) -> bytes:
        """The client's own request, plus what is added."""
        return msgspec.json.encode(merged(call, self.added(call), model=model, without=without, dropped=()))

    def reading(self, call: ChatCall, answer: Answer) -> Reading:
        """Gathered in chat's names; the dialect sees the engine's own."""
        return CompletionsReading(call, answer)


class CompletionsReading:
    """One reply."""

    def __init__(self, call: ChatCall, answer: Answer) -> None:
        self._prompt_ids = call.prompt_ids
        self._answer = answer

    def whole(self, part: EngineObject) -> EngineObject:
        """All of it."""
        self._answer.add(as_chat(part, "message", self._prompt_ids), "message")
        return part

    def chunk(self, part: EngineObject) -> EngineObject | None:
        """All of it."""
        self._answer.add(as_chat(part, "delta", self._prompt_ids), "delta")
        return part


def as_chat(engine: EngineObject, key: str, prompt_ids: list[int] | None) -> EngineObject:
    """A reply (`key` = message) or chunk (`key` = delta) in chat completions' names.

    `prompt_ids` stand in where the engine does not repeat the ids that it was given.
    Raises `MalformedReply`.
    """
    fields = {name: raw for name, raw in engine.fields.items() if name != "choices"}
    try:
        lift_versions(fields)
        choices = [_choice(choice, key, fields) for choice in engine.choices]
    except msgspec.MsgspecError as exc:
        raise MalformedReply(f"not a text completion: {exc}") from exc
    if prompt_ids is not None:
        fields.setdefault("prompt_token_ids", _raw(prompt_ids))
    return EngineObject(fields, choices)


def _choice(
    choice: dict[str, msgspec.Raw], key: str, fields: dict[str, msgspec.Raw]
) -> dict[str, msgspec.Raw]:
    if bytes(choice.get("prompt_token_ids", NULL)) != b"null":
        fields.setdefault("prompt_token_ids", choice["prompt_token_ids"])
    chat = {name: raw for name, raw in choice.items() if name not in _NOT_CHAT}
    chat[key] = _raw({"content": msgspec.json.decode(choice.get("text", b'""'), type=str | None)})
    if (values := logprobs_of(choice)) is not None:
        chat["logprobs"] = _raw({"content": [{"logprob": value} for value in values]})
    return chat


def logprobs_of(choice: dict[str, msgspec.Raw]) -> list[float] | None:
    """Log-probabilities of a completion's choice, those that the engine gave. Raises `MsgspecError`."""
    found = msgspec.json.decode(choice.get("logprobs", NULL), type=_Logprobs | None)
    if found is None or found.token_logprobs is None:
        return None
    return [value for value in found.token_logprobs if value is not None]


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
