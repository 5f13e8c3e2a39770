"""Proxied routes do not pass through FastAPI, but belong into its description."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from gateway.described_errors import ANTHROPIC_ERROR, OPENAI_ERROR, error_reply
from gateway.dialects import DIALECTS
from gateway.dialects.messages import COUNT_TOKENS_PATH

_IDS = ("trajectory_id", "prompt_id")
_TURNS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": ["user", "assistant"]}, "content": {"type": "string"}},
    },
}
_STREAM = {"type": "boolean", "description": "Answer with an event stream."}
_IDS_LIST = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}}
_REQUIRED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": _TURNS},
    "responses": {"input": {"type": "string", "description": "Or a list of items."}},
    "messages": {"messages": _TURNS},
    "messages/count_tokens": {"messages": _TURNS},
    "completions": {"prompt": {"anyOf": [{"type": "string"}, _IDS_LIST]}},
    "generate": {"prompt_ids": _IDS_LIST},
}
"""What each protocol cannot do without; the rest is the protocol's own, and travels on."""
_ONLINE = "The trajectory is found from the client's own conversation ids, or by what was said before."


def document_proxied(app: FastAPI) -> None:
    """Add every dialect to the app's OpenAPI document, with ids in the path and without."""
    paths = app.openapi()["paths"]
    for dialect in DIALECTS.values():
        summary = dialect.protocol.replace("_", " ").capitalize()
        text = (dialect.__doc__ or "").strip()
        _add(paths, dialect.path, summary, text)
    count = "Count the tokens of a Messages request; an estimate says `estimated`. Nothing is captured."
    _add(paths, COUNT_TOKENS_PATH, "Count tokens", count)


def _add(paths: dict[str, Any], path: str, summary: str, text: str) -> None:
    paths[f"/{{trajectory_id}}/{{prompt_id}}/v1/{path}"] = {"post": _operation(summary, text, _IDS, path)}
    if path == "generate":
        paths["/generate"] = {"post": _operation(summary, text, (), path)}
    else:
        text = f"{text}\n\n{_ONLINE}"
        paths[f"/v1/{path}"] = {"post": _operation(f"{summary}, online mode", text, (), path)}


def _body(path: str) -> dict[str, Any]:
    properties = dict(_REQUIRED[path])
    if path not in {"generate", COUNT_TOKENS_PATH}:
        properties["stream"] = _STREAM
    properties["model"] = {"type": "string", "description": "`default`: the engine's only model."}
    return {"type": "object", "required": list(_REQUIRED[path]), "properties": properties}


def _replies(path: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if path not in {"generate", COUNT_TOKENS_PATH}:
        answer["text/event-stream"] = {}
    schema = ANTHROPIC_ERROR if path.startswith("messages") else OPENAI_ERROR
    return {
        "200": {
            "description": "The answer; its step is durable. An event stream where asked for.",
            "content": answer,
        },
        "4XX": error_reply("The message says what to change; the engine's own errors come through.", schema),
        "5XX": error_reply("The engine or the broker is away.", schema, retry=True),
    }


def _operation(summary: str, text: str, ids: tuple[str, ...], path: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": text,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in ids
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _body(path)}}},
        "responses": _replies(path),
    }
