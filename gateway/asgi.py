"""The little of HTTP that proxied calls need, straight on ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from gateway.decompression import body_too_large, check_encoding, decompressed
from gateway.failures import Failure, error_body

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class ClientGone(Exception):
    """The client closed the connection before its request was whole."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def text_header(scope: Scope, name: bytes) -> str:
    """The first header of that name as text, or the empty string."""
    return (header(scope, name) or b"").decode("latin-1")


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int) -> bytes:
    """The whole request body, decompressed. Raises `InvalidInput` (400, 413, 415) and `ClientGone`."""
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and len(declared) < 20 and int(declared) > max_bytes:
        raise body_too_large(max_bytes)
    encoding = text_header(scope, b"content-encoding").strip().lower()
    check_encoding(encoding)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise body_too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            return decompressed(body, encoding, max_bytes=max_bytes)


async def until_gone(receive: Receive) -> None:
    """Return once the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def start_reply(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Send status and headers."""
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def send_reply(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a whole JSON reply."""
    all_headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await start_reply(send, status, all_headers)
    await send({"type": "http.response.body", "body": body})


async def send_failure(
    send: Send, failure: Failure, body: bytes | None = None, *, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send an error reply."""
    all_headers = [*failure.headers(), *headers]
    await send_reply(send, failure.status, error_body(failure) if body is None else body, all_headers)
