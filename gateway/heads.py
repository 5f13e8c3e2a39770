"""What is decided by a request's head alone: its size, and that this gateway speaks no WebSocket."""

from __future__ import annotations

from gateway.asgi import Headers, Receive, Scope, Send, send_reply, text_header
from gateway.failures import Failure, error_body

_UPGRADE = Failure(
    426,
    "upgrade_required",
    "this gateway speaks HTTP/1.1, not WebSocket: send POST, with `stream` for an event stream",
)
_UPGRADE_HEADERS: Headers = [(b"upgrade", b"HTTP/1.1"), (b"connection", b"close")]


def head_bytes(scope: Scope) -> int:
    """Size of path and headers."""
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return size + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def too_large_head(size: int, limit: int) -> Failure:
    """The 431."""
    message = (
        f"path and headers have {size} bytes, and {limit} are allowed: send less, or raise "
        "AGENTWORLD_GATEWAY_MAX_HEADER_BYTES"
    )
    return Failure(431, "headers_too_large", message)


def is_upgrade(scope: Scope) -> bool:
    """Whether a WebSocket is asked for, be it that the server knows them or not."""
    return scope["type"] == "websocket" or text_header(scope, b"upgrade").lower() == "websocket"


async def refuse_upgrade(scope: Scope, receive: Receive, send: Send) -> None:
    """426, so that clients (Codex) take HTTP instead."""
    body = error_body(_UPGRADE)
    if scope["type"] == "http":
        await send_reply(send, _UPGRADE.status, body, _UPGRADE_HEADERS)
        return
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1002})
        return
    headers = [(b"content-type", b"application/json"), *_UPGRADE_HEADERS]
    await send({"type": "websocket.http.response.start", "status": _UPGRADE.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
