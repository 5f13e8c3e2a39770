"""Proxied routes do not pass through FastAPI, but belong into its description."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from gateway.dialects import DIALECTS
from gateway.dialects.messages import COUNT_TOKENS_PATH

_IDS = ("trajectory_id", "prompt_id")
_ERRORS = {
    "4XX": {"description": "An error object in the protocol's own shape; its message says what to change."},
    "5XX": {"description": "The same; the engine or the broker is away."},
}
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
    paths[f"/{{trajectory_id}}/{{prompt_id}}/v1/{path}"] = {"post": _operation(summary, text, _IDS)}
    if path == "generate":
        paths["/generate"] = {"post": _operation(summary, text, ())}
    else:
        paths[f"/v1/{path}"] = {"post": _operation(f"{summary}, online mode", f"{text}\n\n{_ONLINE}", ())}


def _operation(summary: str, text: str, ids: tuple[str, ...]) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": text,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in ids
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {"description": "The answer; its step is durable. An event stream where asked for."},
            **_ERRORS,
        },
    }
