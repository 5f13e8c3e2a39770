"""A Messages request as a canonical call."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from agentworld.contract.errors import InvalidInput
from gateway.dialects.messages.call import MessagesCall, NewId
from gateway.dialects.messages.history import chat_messages, system_text
from gateway.dialects.messages.tools import choice_fields, functions
from gateway.dialects.messages.wire import (
    Block,
    Format,
    Message,
    Metadata,
    OutputConfig,
    Tool,
    ToolChoice,
    invalid,
    read,
    without_lone_surrogates,
)

_NOT_FOR_ENGINE = frozenset(
    {
        "anthropic_version",
        "betas",
        "billing_policy",
        "cache_control",
        "context_management",
        "diagnostics",
        "inference_geo",
        "service_tier",
        "speed",
        "thinking",
        "user_profile_id",
        "workspace_id",
    }
)
"""Ask for what only Anthropic's servers do; an answer without it is still right."""

_TRANSLATED = frozenset(
    {
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "stop_sequences",
        "stream",
        "system",
        "tool_choice",
        "tools",
    }
)
_REFUSED = ("compaction", "container", "fallbacks", "mcp_servers", "thread")
"""Change what the answer is, and no engine can do them."""

_NOT_AS_THEY_ARE = _TRANSLATED | _NOT_FOR_ENGINE | frozenset(_REFUSED)

_NOT_SAMPLING = frozenset({"messages", "metadata", "model", "stream", "system", "tools"})
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_EMPTY = frozenset({b"null", b"[]", b"{}"})
_SESSION = re.compile(r"session(?:_id)?[\"':_\s]+([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_ID_CHARS = 256

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse(body: bytes, *, new_id: NewId, inner_system: Literal["system", "user"]) -> MessagesCall:
    """Translate. Fields that Anthropic does not know go to the engine as they are."""
    try:
        return _parse(_decoded(body), new_id, inner_system)
    except (InvalidInput, UnicodeDecodeError, msgspec.MsgspecError):
        whole = without_lone_surrogates(body)
        if whole == body:
            raise
    return _parse(_decoded(whole), new_id, inner_system)


def _decoded(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _fields.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise InvalidInput(
            f"the request body is not a JSON object: {exc}", code="invalid_json", status=400
        ) from exc


def _parse(
    sent: dict[str, msgspec.Raw], new_id: NewId, inner_system: Literal["system", "user"]
) -> MessagesCall:
    for name in _REFUSED:
        if bytes(sent.get(name, b"null")) not in _EMPTY:
            raise invalid(name, "cannot be translated for this engine: leave it out")
    if (read(sent, "n", int) or 1) != 1:
        raise invalid("n", "must be 1: a Message has one answer")
    turns = read(sent, "messages", list[Message])
    if not turns:
        raise invalid("messages", "is missing: send a list of one or more turns")
    system = system_text(read(sent, "system", str | list[Block]) or "")  # type: ignore[arg-type]
    messages = chat_messages(system, turns, inner_system=inner_system)
    tools = functions(read(sent, "tools", list[Tool]) or ())
    stream = read(sent, "stream", bool) or False
    stops = read(sent, "stop_sequences", list[str]) or []

    fields: dict[str, msgspec.Raw] = {"messages": _raw(messages)}
    if tools:
        fields["tools"] = _raw(tools)
    fields |= choice_fields(read(sent, "tool_choice", ToolChoice), [t["function"]["name"] for t in tools])
    fields |= {
        name: raw for name, raw in sent.items() if name not in _NOT_AS_THEY_ARE and bytes(raw) != b"null"
    }
    if stops:
        fields["stop"] = _raw(stops)
    if form := _response_format(sent):
        fields["response_format"] = _raw(form)
    if stream:
        fields["stream"] = _TRUE
    if messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
        # The client put words into the model's mouth; the answer goes on from them.
        fields |= {"continue_final_message": _TRUE, "add_generation_prompt": _FALSE}
    return MessagesCall(
        fields=fields,
        messages=[msgspec.json.encode(message) for message in messages],
        tools=bytes(fields["tools"]) if tools else None,
        model=read(sent, "model", str) or "default",
        stream=stream,
        n=1,
        sampling={n: msgspec.json.decode(raw) for n, raw in sent.items() if n not in _NOT_SAMPLING},
        client_ids=_client_ids(sent),
        new_id=new_id,
        stop_sequences=tuple(stops),
    )


def _response_format(sent: dict[str, msgspec.Raw]) -> dict[str, Any] | None:
    config = read(sent, "output_config", OutputConfig)
    name = "output_config.format"
    form = config.format if config else None
    if form is None:
        name, form = "output_format", read(sent, "output_format", Format)
    if form is None:
        return None
    if form.type != "json_schema" or not bytes(form.schema).startswith(b"{"):
        raise invalid(name, "must be of type json_schema, with a `schema`")
    return {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": form.schema, "strict": True},
    }


def _client_ids(sent: dict[str, msgspec.Raw]) -> dict[str, str]:
    """`metadata.user_id`, and the session that Claude Code writes into it."""
    metadata = read(sent, "metadata", Metadata)
    if metadata is None or not metadata.user_id:
        return {}
    ids = {"user_id": metadata.user_id[:_ID_CHARS]}
    if session := _SESSION.search(metadata.user_id):
        ids["session_id"] = session[1]
    return ids


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
