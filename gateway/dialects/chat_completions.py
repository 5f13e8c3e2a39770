"""OpenAI chat completions: the engine's own protocol, less what the client did not ask for."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.contract.errors import InvalidInput
from gateway.canonical import ChatCall
from gateway.dialects.openai_stream import ENGINE_FIELDS, OpenAiStream
from gateway.engine import EngineObject
from gateway.failures import Failure, error_body

_NULL = msgspec.Raw(b"null")
_NOT_SAMPLING = frozenset({"messages", "tools", "model", "stream"})
_CLIENT_ID_FIELDS = ("prompt_cache_key", "user", "conversation_id", "session_id")


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid_request", status=400)


def _field(fields: dict[str, msgspec.Raw], name: str, expected: type[Any] | Any, what: str) -> Any:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=expected)
    except msgspec.MsgspecError as exc:
        raise _invalid(f"`{name}` must be {what}") from exc


def _messages(fields: dict[str, msgspec.Raw]) -> list[bytes]:
    if "messages" not in fields:
        raise _invalid("`messages` is missing: send a list of chat messages")
    try:
        messages = [bytes(raw) for raw in _raw_list.decode(fields["messages"])]
    except msgspec.MsgspecError as exc:
        raise _invalid("`messages` must be a list of chat messages") from exc
    if not messages or not all(message.startswith(b"{") for message in messages):
        raise _invalid("`messages` must be a list of one or more objects, each with a role")
    return messages


class ChatCompletions:
    """OpenAI chat completions, streamed or not. Unknown fields travel to the engine."""

    protocol: Literal["chat_completions"] = "chat_completions"
    path = "chat/completions"

    def parse(self, body: bytes) -> ChatCall:
        """Read the fields the gateway must know; the rest stays as it came."""
        try:
            if not body.isascii():
                body.decode()
            fields = _fields.decode(body)
            parsed = {k: msgspec.json.decode(raw) for k, raw in fields.items() if k not in _NOT_SAMPLING}
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise InvalidInput(
                f"the request body is not a JSON object: {exc}", code="invalid_json", status=400
            ) from exc
        messages = _messages(fields)
        tools = fields.get("tools")
        options = _field(fields, "stream_options", dict[str, Any] | None, "an object") or {}
        n = _field(fields, "n", int | None, "a whole number from 1 on")
        if n is not None and n < 1:
            raise _invalid("`n` must be a whole number from 1 on")
        return ChatCall(
            fields=fields,
            messages=messages,
            tools=None if tools is None or bytes(tools) in {b"null", b"[]"} else bytes(tools),
            model=_field(fields, "model", str | None, "a string") or "default",
            stream=bool(_field(fields, "stream", bool | None, "true or false")),
            n=n or 1,
            wants_logprobs=bool(_field(fields, "logprobs", bool | None, "true or false")),
            wants_token_ids=bool(_field(fields, "return_token_ids", bool | None, "true or false")),
            wants_usage=options.get("include_usage") is True,
            sampling=parsed,
            client_ids={k: parsed[k] for k in _CLIENT_ID_FIELDS if isinstance(parsed.get(k), str)},
        )

    def reply(self, call: ChatCall, engine: EngineObject) -> bytes:
        """The engine's body, less what the client did not ask for."""
        return _encode(call, engine)

    def stream(self, call: ChatCall) -> OpenAiStream:
        """A fresh stream."""
        return OpenAiStream(call, _encode)

    def error(self, failure: Failure) -> bytes:
        """OpenAI's error object."""
        return error_body(failure)


def _encode(call: ChatCall, engine: EngineObject) -> bytes:
    fields: dict[str, Any] = dict(engine.fields)
    if not call.wants_token_ids:
        for name in ENGINE_FIELDS:
            fields.pop(name, None)
    if "choices" in fields:
        fields["choices"] = [_choice(call, choice) for choice in engine.choices]
    return msgspec.json.encode(fields)


def _with_reasoning_content(message: msgspec.Raw) -> msgspec.Raw:
    """vLLM's `reasoning` under the name that most clients read, too."""
    raw = bytes(message)
    if b'"reasoning"' not in raw or b'"reasoning_content"' in raw:
        return message
    fields = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    if "reasoning" in fields:
        fields["reasoning_content"] = fields["reasoning"]
    return msgspec.Raw(msgspec.json.encode(fields))


def _choice(call: ChatCall, choice: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    shown = dict(choice)
    for key in ("message", "delta"):
        if key in shown:
            shown[key] = _with_reasoning_content(shown[key])
    if not call.wants_token_ids:
        shown.pop("token_ids", None)
    if not call.wants_logprobs and "logprobs" in shown:
        shown["logprobs"] = _NULL
    return shown
