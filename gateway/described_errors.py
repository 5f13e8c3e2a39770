"""Error replies, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
OPENAI_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {**_TEXT, "description": "What to do."},
                "type": _TEXT,
                "code": {**_TEXT, "description": "Stable: for programs."},
                "param": {"type": ["string", "null"], "description": "The field at fault."},
            },
        }
    },
}
ANTHROPIC_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": _TEXT, "message": {**_TEXT, "description": "What to do."}},
        },
    },
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": _TEXT}}
_MEANINGS = {
    400: "The body is not what it should be.",
    401: "Auth is on, and the path has no valid token nor the request an API key.",
    404: "There is no such trajectory.",
    409: "It is completed, belongs to another prompt, or is registered otherwise.",
    413: "The body is too large.",
    415: "The body is compressed in a way that is not understood; Accept-Encoding says which are.",
    422: "A name or field is not valid; the message says which.",
    431: "The headers are too large.",
    501: "No reward function is configured.",
    502: "The reward function failed.",
    503: "It cannot be made durable now.",
}
_BODY = (400, 413, 415, 422, 431)


def errors(*statuses: int, body: bool = True) -> dict[int | str, dict[str, Any]]:
    """Replies for `responses=` of a control route; with `body`, also what any body may be answered."""
    every = sorted({*statuses, 401, *(_BODY if body else (431,))})
    return {status: error_reply(_MEANINGS[status], retry=status == 503) for status in every}


def error_reply(
    description: str, schema: dict[str, Any] = OPENAI_ERROR, *, retry: bool = False
) -> dict[str, Any]:
    """One reply; `retry`: with Retry-After."""
    reply: dict[str, Any] = {
        "description": description,
        "content": {"application/json": {"schema": schema}},
    }
    return reply | ({"headers": _RETRY_AFTER} if retry else {})
