"""Who is calling, as far as headers tell: the client's own ids, and the key that it brings."""

from __future__ import annotations

import hashlib
from typing import Any

from agentworld.contract.events import Json
from gateway.asgi import Scope, text_header

_ID_HEADERS = {
    name.encode(): name
    for name in (
        "thread-id",
        "session-id",
        "session_id",
        "x-session-id",
        "x-parent-session-id",
        "x-session-affinity",
        "x-claude-code-session-id",
        "x-claude-code-agent-id",
        "x-codex-window-id",
        "x-codex-parent-thread-id",
        "x-openai-subagent",
        "x-client-request-id",
    )
}
"""Measured with Codex, Claude Code and OpenCode."""

_ID_CHARS = 256
_SECRET_FIELDS = frozenset({"api_key", "apikey", "authorization", "extra_headers", "headers", "x-api-key"})


def header_ids(scope: Scope) -> dict[str, str]:
    """The client's ids in the headers, by header name."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        if (known := _ID_HEADERS.get(name)) is not None and value:
            found[known] = value.decode("latin-1")[:_ID_CHARS]
    return found


TRUSTED = "agentworld.trusted"
"""In a scope: whether the request brought a key of this gateway's own."""
CALLER = "agentworld.caller"
"""In a scope: who calls, where a token says it."""


def _given(scope: Scope) -> str:
    """The Authorization header; Anthropic's clients bring their key as `x-api-key`."""
    given = text_header(scope, b"authorization")
    if not given and (key := text_header(scope, b"x-api-key")):
        return f"Bearer {key}"
    return given


def given_key(scope: Scope) -> str:
    """The bearer token or API key that the request brings."""
    scheme, _, key = _given(scope).partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def authorization(scope: Scope) -> str:
    """The client's Authorization for the engine; a key of the gateway's own is none of the engine's."""
    return "" if scope.get(TRUSTED) else _given(scope)


def caller_key(scope: Scope) -> str:
    """Stands for whoever calls: its trajectory, else a digest of the key it brings, else its address."""
    if caller := scope.get(CALLER):
        return str(caller)
    if given := _given(scope):
        return hashlib.blake2b(given.encode("latin-1"), digest_size=16).hexdigest()
    client = scope.get("client")
    return str(client[0]) if client else ""


def without_secrets(value: Json) -> Json:
    """`value` without what some clients put keys into, however deep."""
    return {name: _clean(inner) for name, inner in value.items() if name.lower() not in _SECRET_FIELDS}


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return without_secrets(value)
    return [_clean(inner) for inner in value] if isinstance(value, list) else value


def without_secret(text: str, authorization: str) -> str:
    """`text` without the key in `authorization`, which an engine may repeat in its errors."""
    secret = authorization.rpartition(" ")[2]
    return text.replace(secret, "***") if len(secret) >= 8 else text
