"""A Responses request body to a canonical call."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.contract.errors import InvalidInput
from gateway.dialects.responses.call import ResponsesCall
from gateway.dialects.responses.fields import invalid, read
from gateway.dialects.responses.history import InnerSystem, chat_messages
from gateway.dialects.responses.identity import client_ids, is_codex
from gateway.dialects.responses.items import read_input
from gateway.dialects.responses.passed_on import PASSED_ON
from gateway.dialects.responses.tools import choose, read_tools

_NOT_SAMPLING = frozenset({"input", "instructions", "tools", "model", "stream", "stream_options"})
_STATEFUL = {
    "previous_response_id": "send the whole conversation in `input`",
    "conversation": "send the whole conversation in `input`",
    "prompt": "send the text of the prompt in `instructions` and `input`",
    "background": "leave it out and wait for the reply",
}
"""Fields that need a server which keeps things, and what to do instead."""
_SUMMARIES = frozenset({"auto", "concise", "detailed"})

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Format(msgspec.Struct):
    type: str = "text"
    name: str = "response"
    schema: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None
    description: str | None = None


class _Text(msgspec.Struct):
    format: _Format | None = None


class _Reasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


def parse_request(body: bytes, *, minted: str, inner_system: InnerSystem) -> ResponsesCall:
    """Translate a request. `minted` is a UUIDv7 for the ids of the answer. Raises `InvalidInput`."""
    try:
        fields = _fields.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise InvalidInput(
            f"the request body is not a JSON object: {exc}", code="invalid_json", status=400
        ) from exc
    _refuse_stateful(fields)
    items = read_input(fields)
    messages = chat_messages(read(fields, "instructions", str), items, inner_system)
    tools, tool_choice = choose(fields, read_tools(fields))
    model = read(fields, "model", str) or "default"
    stream = bool(read(fields, "stream", bool))
    reasoning = read(fields, "reasoning", _Reasoning) or _Reasoning()
    include = read(fields, "include", list[str]) or []
    if "message.output_text.logprobs" in include:
        raise invalid(
            "`include`: log-probabilities of the text alone cannot be told apart from those of "
            "reasoning and calls: leave message.output_text.logprobs out, or use chat completions"
        )
    call = ResponsesCall(
        fields={},
        messages=messages,
        tools=tools.json,
        model=model,
        stream=stream,
        n=1,
        sampling={n: msgspec.json.decode(raw) for n, raw in fields.items() if n not in _NOT_SAMPLING},
        client_ids=client_ids(fields),
        minted=minted,
        used_ids=frozenset(item.call_id for item in items if item.call_id is not None),
        tool_origins=tools.origins,
        summarises=(reasoning.summary or reasoning.generate_summary) in _SUMMARIES,
        seals_reasoning="reasoning.encrypted_content" in include,
        never_incomplete=is_codex(fields),
    )
    call.fields = _chat_fields(fields, call, tool_choice)
    call.echo = _echo(fields)
    return call


def _refuse_stateful(fields: dict[str, msgspec.Raw]) -> None:
    for name, instead in _STATEFUL.items():
        if bytes(fields.get(name, b"null")) not in {b"null", b"false"}:
            raise invalid(f"`{name}`: this gateway keeps no responses on its side: {instead}")
    if read(fields, "n", int) not in {None, 1}:
        raise invalid("`n` must be 1: a response has one answer")


def _chat_fields(
    fields: dict[str, msgspec.Raw], call: ResponsesCall, tool_choice: Any
) -> dict[str, msgspec.Raw]:
    chat: dict[str, Any] = {
        "model": call.model,
        "stream": call.stream,
        "messages": [msgspec.Raw(message) for message in call.messages],
    }
    if call.tools is not None:
        chat["tools"] = msgspec.Raw(call.tools)
        if tool_choice is not None:
            chat["tool_choice"] = tool_choice
        if (parallel := read(fields, "parallel_tool_calls", bool)) is not None:
            chat["parallel_tool_calls"] = parallel
    if (limit := read(fields, "max_output_tokens", int)) is not None:
        chat["max_completion_tokens"] = limit
    if (response_format := _response_format(fields)) is not None:
        chat["response_format"] = response_format
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in chat.items()}
    for name, value in fields.items():
        if name in PASSED_ON and name not in raw and bytes(value) != b"null":
            raw[name] = value
    return raw


def _response_format(fields: dict[str, msgspec.Raw]) -> dict[str, Any] | None:
    text = read(fields, "text", _Text)
    if text is None or text.format is None or text.format.type == "text":
        return None
    wanted = text.format
    if wanted.type == "json_object":
        return {"type": "json_object"}
    if wanted.type != "json_schema":
        raise invalid("`text.format.type` must be text, json_object or json_schema")
    if bytes(wanted.schema) == b"null":
        raise invalid("`text.format.schema` is missing: a json_schema format needs one")
    schema: dict[str, Any] = {"name": wanted.name, "schema": wanted.schema}
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    if wanted.description is not None:
        schema["description"] = wanted.description
    return {"type": "json_schema", "json_schema": schema}


def _echo(fields: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """What a response object repeats; tools and instructions, the bulk of a request, are not repeated."""
    defaults: dict[str, Any] = {
        "max_output_tokens": None,
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "top_p": 1.0,
        "truncation": "disabled",
        "metadata": {},
        "user": None,
    }
    sent = {name: fields[name] for name in defaults if bytes(fields.get(name, b"null")) != b"null"}
    return {**defaults, **sent}
