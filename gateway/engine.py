"""The engine's side of a call, in vLLM's field names: what is asked for, what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentworld.contract.events import TokenId
from gateway.canonical import ChatCall

_TRUE = msgspec.Raw(b"true")


class MalformedReply(Exception):
    """The engine's answer is not a chat completion."""


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None


class _Logprob(msgspec.Struct):
    logprob: float | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    """A message, or a part of one in a stream."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Error(msgspec.Struct):
    message: str = "the engine reported an error"
    code: Any = None


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_ids = msgspec.json.Decoder(list[TokenId] | None)
_logprobs = msgspec.json.Decoder(_Logprobs | None)
_message = msgspec.json.Decoder(_Message | None)
_stop = msgspec.json.Decoder(str | int | None)
_usage = msgspec.json.Decoder(_Usage | None)


@dataclass(slots=True)
class EngineObject:
    """A reply, or one chunk of a streamed one, read one level deep."""

    fields: dict[str, msgspec.Raw]
    choices: list[dict[str, msgspec.Raw]]

    @classmethod
    def parse(cls, data: bytes) -> EngineObject:
        """Read the engine's JSON. Raises `MalformedReply`."""
        try:
            fields = _fields.decode(data)
            return cls(fields, _choices.decode(fields["choices"]) if "choices" in fields else [])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise MalformedReply(f"not a chat completion: {exc}") from exc

    @property
    def error(self) -> str | None:
        """The engine's error message, where this is one."""
        raw = self.fields.get("error")
        if raw is None or bytes(raw) == b"null":
            return None
        try:
            return msgspec.json.decode(raw, type=_Error).message
        except msgspec.MsgspecError:
            return bytes(raw).decode(errors="replace")[:1000]


def engine_body(call: ChatCall, *, model: str) -> bytes:
    """The request for the engine: the client's own, plus ids, logprobs and usage."""
    fields: dict[str, Any] = dict(call.fields)
    fields["model"] = model
    fields["return_token_ids"] = _TRUE
    fields["logprobs"] = _TRUE
    if call.stream:
        options = call.sampling.get("stream_options") or {}
        fields["stream_options"] = {**options, "include_usage": True}
    return msgspec.json.encode(fields)


@dataclass(slots=True)
class Choice:
    """One sampled turn, as gathered so far."""

    index: int
    ids: list[int] | None = None
    """None until the engine gave any."""
    logprobs: list[float] | None = None
    finish_reason: str | None = None
    stopped_by: str | int | None = None
    """The stop string or token that ended it, where the engine names it."""
    content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: dict[int, dict[str, str]] = field(default_factory=dict)

    def add(self, choice: dict[str, msgspec.Raw], key: str) -> None:
        """Take in a choice of a reply (`key` = message) or of a chunk (`key` = delta)."""
        if "token_ids" in choice and (ids := _ids.decode(choice["token_ids"])) is not None:
            if self.ids is None:
                self.ids = ids
            else:
                self.ids.extend(ids)
        if "logprobs" in choice and (logprobs := _logprobs.decode(choice["logprobs"])) is not None:
            values = [item.logprob for item in logprobs.content or () if item.logprob is not None]
            if self.logprobs is None:
                self.logprobs = values
            else:
                self.logprobs.extend(values)
        if "finish_reason" in choice:
            self.finish_reason = (
                msgspec.json.decode(choice["finish_reason"], type=str | None) or self.finish_reason
            )
        for name in ("stop_reason", "matched_stop"):
            if name in choice:
                self.stopped_by = _stop.decode(choice[name]) or self.stopped_by
        if key in choice and (part := _message.decode(choice[key])) is not None:
            self._add_message(part)

    def _add_message(self, part: _Message) -> None:
        reasoning = part.reasoning if part.reasoning is not None else part.reasoning_content
        if part.content is not None:
            self.content = (self.content or "") + part.content
        if reasoning is not None:
            self.reasoning = (self.reasoning or "") + reasoning
        if part.refusal is not None:
            self.refusal = (self.refusal or "") + part.refusal
        for place, tool in enumerate(part.tool_calls or ()):
            index = tool.index if tool.index is not None else place
            known = self.tool_calls.setdefault(
                index, {"id": "", "type": "function", "name": "", "arguments": ""}
            )
            known["id"] = tool.id or known["id"]
            known["type"] = tool.type or known["type"]
            if tool.function is not None:
                known["name"] += tool.function.name or ""
                known["arguments"] += tool.function.arguments or ""

    @property
    def end_id(self) -> int | None:
        """The token that ended the turn; None where a stop string or the limit did, or nobody knows."""
        if self.finish_reason not in {"stop", "tool_calls"} or isinstance(self.stopped_by, str):
            return None
        if self.stopped_by is not None:
            return self.stopped_by
        return self.ids[-1] if self.ids else None

    @property
    def sampled(self) -> bool:
        """Whether anything was sampled yet."""
        return bool(self.ids or self.content or self.reasoning or self.tool_calls)

    @property
    def message(self) -> msgspec.Raw | None:
        """The turn as a canonical chat message: the same whether it was streamed or not."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["content"] = self.content or None
            message["tool_calls"] = [
                {
                    "id": tool["id"],
                    "type": tool["type"],
                    "function": {"name": tool["name"], "arguments": tool["arguments"]},
                }
                for _, tool in sorted(self.tool_calls.items())
            ]
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.refusal:
            message["refusal"] = self.refusal
        if self.content is None and len(message) == 2 and not self.ids:
            return None
        return msgspec.Raw(msgspec.json.encode(message))


@dataclass(slots=True)
class Answer:
    """Everything gathered of an engine's answer, and who gave it."""

    engine: str = ""
    """Configured name of the engine that answered; empty until one took the call."""
    policy: str | None = None
    """The policy that the engine serves, where the configuration says so; else the trajectory's."""
    trainable: bool = True
    """False for a frozen model (judge, teacher): captured, never trained on."""
    logprobs_mode: str = ""
    """What distribution the engine's logprobs are of, where the configuration says so."""
    retokenized: bool = False
    """The ids are the gateway's own reading of the text: never trained on as if they were the engine's."""

    choices: dict[int, Choice] = field(default_factory=dict)
    prompt_ids: list[int] | None = None
    prompt_tokens: int | None = None
    """The engine's own count."""
    response_tokens: int | None = None
    """The engine's own count, over all choices."""
    cached_tokens: int | None = None
    model: str = ""
    request_id: str = ""
    version_start: int | None = None
    version_end: int | None = None

    def add(self, part: EngineObject, key: str) -> None:
        """Take in a reply (`key` = message) or a chunk (`key` = delta). Raises `MalformedReply`."""
        try:
            self._add(part, key)
        except (msgspec.MsgspecError, ValueError) as exc:
            raise MalformedReply(f"not a chat completion: {exc}") from exc

    def _add(self, part: EngineObject, key: str) -> None:
        fields = part.fields
        if self.prompt_ids is None and "prompt_token_ids" in fields:
            self.prompt_ids = _ids.decode(fields["prompt_token_ids"])
        if "usage" in fields and (usage := _usage.decode(fields["usage"])) is not None:
            self.prompt_tokens = usage.prompt_tokens
            self.response_tokens = usage.completion_tokens
            cached = (usage.prompt_tokens_details or {}).get("cached_tokens")
            self.cached_tokens = cached if isinstance(cached, int) else None
        if not self.request_id:
            self.request_id = msgspec.json.decode(fields.get("id", b'""'), type=str | None) or ""
            self.model = msgspec.json.decode(fields.get("model", b'""'), type=str | None) or ""
        self._add_versions(fields)
        for choice in part.choices:
            self._add_versions(choice)
            index = msgspec.json.decode(choice.get("index", b"0"), type=int)
            if index not in self.choices:
                self.choices[index] = Choice(index)
            self.choices[index].add(choice, key)

    def _add_versions(self, fields: dict[str, msgspec.Raw]) -> None:
        if versions := _versions(fields):
            self.version_start = versions[0] if self.version_start is None else self.version_start
            self.version_end = versions[-1]

    def finished(self, n: int) -> bool:
        """Whether all `n` choices have their finish reason."""
        return len(self.choices) >= n and all(c.finish_reason for c in self.choices.values())


def _versions(fields: dict[str, msgspec.Raw]) -> list[int]:
    """Weight versions in a reply or choice: `weight_version` or `weight_versions`, numbers or digits."""
    for name in ("weight_versions", "weight_version"):
        if name in fields:
            value = msgspec.json.decode(fields[name])
            values = value if isinstance(value, list) else [value]
            return [int(v) for v in values if isinstance(v, int) or (isinstance(v, str) and v.isdigit())]
    return []
