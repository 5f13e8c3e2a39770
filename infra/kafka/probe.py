"""Is a Kafka broker answering? One ApiVersions request, no client library."""

from __future__ import annotations

import socket
import struct

_API_VERSIONS = 18
_CLIENT_ID = b"probe"


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed by the broker")
        data += chunk
    return data


def answers(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Whether the broker answers ApiVersions without an error."""
    body = struct.pack(">hhih", _API_VERSIONS, 0, 1, len(_CLIENT_ID)) + _CLIENT_ID
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _read_exactly(connection, 4))
            correlation, error = struct.unpack(">ih", _read_exactly(connection, min(size, 6)))
    except (OSError, struct.error):
        return False
    return bool(correlation == 1 and error == 0)
