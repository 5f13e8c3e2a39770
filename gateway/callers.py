"""Who is calling, as far as headers tell: the client's own ids, and the key that it brings."""

from __future__ import annotations

import hashlib

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


def header_ids(scope: Scope) -> dict[str, str]:
    """The client's ids in the headers, by header name."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        if (known := _ID_HEADERS.get(name)) is not None and value:
            found[known] = value.decode("latin-1")[:_ID_CHARS]
    return found


def authorization(scope: Scope) -> str:
    """The client's Authorization for the engine; Anthropic's clients bring theirs as `x-api-key`."""
    given = text_header(scope, b"authorization")
    if not given and (key := text_header(scope, b"x-api-key")):
        return f"Bearer {key}"
    return given


def caller_key(scope: Scope) -> str:
    """Stands for whoever calls: a digest of the key it brings, else its address."""
    if given := authorization(scope):
        return hashlib.blake2b(given.encode("latin-1"), digest_size=16).hexdigest()
    client = scope.get("client")
    return str(client[0]) if client else ""


def without_secret(text: str, authorization: str) -> str:
    """`text` without the key in `authorization`, which an engine may repeat in its errors."""
    secret = authorization.rpartition(" ")[2]
    return text.replace(secret, "***") if len(secret) >= 8 else text
