"""Who is speaking, as far as the body tells."""

from __future__ import annotations

from typing import Any

import msgspec

_FIELDS = ("prompt_cache_key", "user", "safety_identifier")
_MAX_CHARS = 256
_CODEX_MARK = "x-codex-"
_CODEX_IDS = {
    "thread_id": "thread-id",
    "session_id": "session-id",
    "x-codex-window-id": "x-codex-window-id",
    "x-codex-parent-thread-id": "x-codex-parent-thread-id",
    "x-openai-subagent": "x-openai-subagent",
}
"""Codex repeats its headers in `client_metadata`; here under their header names."""


def client_ids(fields: dict[str, msgspec.Raw]) -> dict[str, str]:
    """Conversation ids in the body, and Codex's `request_kind` (turn, compaction)."""
    ids = {name: _json(fields.get(name)) for name in _FIELDS}
    metadata = _object(fields.get("client_metadata"))
    ids |= {name: metadata.get(key) for key, name in _CODEX_IDS.items()}
    turn = metadata.get("x-codex-turn-metadata")
    if isinstance(turn, str):
        ids["request_kind"] = _object(turn.encode()).get("request_kind")
    return {name: value[:_MAX_CHARS] for name, value in ids.items() if isinstance(value, str) and value}


def is_codex(fields: dict[str, msgspec.Raw]) -> bool:
    """Codex ends its run on `response.incomplete` (measured with 0.171), so it must be known."""
    return any(name.startswith(_CODEX_MARK) for name in _object(fields.get("client_metadata")))


def _object(raw: bytes | msgspec.Raw | None) -> dict[str, Any]:
    value = _json(raw)
    return value if isinstance(value, dict) else {}


def _json(raw: bytes | msgspec.Raw | None) -> Any:
    try:
        return msgspec.json.decode(raw or b"null")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
