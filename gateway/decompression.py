"""Request bodies under Content-Encoding: gzip and zstd, never more than is allowed once they are unpacked."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from agentworld.contract.errors import InvalidInput

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPTED = "identity, gzip, zstd"
"""Names for an Accept-Encoding header."""

_GZIP_WINDOW = zlib.MAX_WBITS | 16
_IDENTITY = frozenset({"", "identity"})


class _Unpacker(Protocol):
    """One member or frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


_UNPACKERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(_GZIP_WINDOW),
    "x-gzip": lambda: zlib.decompressobj(_GZIP_WINDOW),
    "zstd": zstd.ZstdDecompressor,
}


def body_too_large(max_bytes: int) -> InvalidInput:
    """The 413 for a body beyond the limit, packed or unpacked."""
    return InvalidInput(
        f"the request body has more than {max_bytes} bytes: send less, or raise "
        "AGENTWORLD_GATEWAY_MAX_BODY_BYTES",
        code="body_too_large",
        status=413,
    )


def check_encoding(encoding: str) -> None:
    """Raise `InvalidInput` 415 for an encoding that is not accepted, and for several at once."""
    if encoding not in _IDENTITY and encoding not in _UNPACKERS:
        raise InvalidInput(
            f"the request body has Content-Encoding {encoding[:64]!r}: send it as gzip or zstd, or as it is",
            code="unsupported_encoding",
            status=415,
        )


def decompressed(body: bytes, encoding: str, *, max_bytes: int) -> bytes:
    """The body before `encoding`. Raises `InvalidInput`: 400 for bad data, 413 beyond `max_bytes`."""
    if encoding in _IDENTITY:
        return body
    parts: list[bytes] = []
    left, size = body, 0
    while left:
        unpacker: _Unpacker = _UNPACKERS[encoding]()
        try:
            part = unpacker.decompress(left, max_bytes - size + 1)
        except (zlib.error, zstd.ZstdError) as exc:
            raise _bad(encoding, str(exc)) from exc
        size += len(part)
        if size > max_bytes:
            raise body_too_large(max_bytes)
        if not unpacker.eof:
            raise _bad(encoding, "it ends too early")
        parts.append(part)
        left = unpacker.unused_data
    return b"".join(parts)


def _bad(encoding: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"the request body is not valid {encoding} ({why}): send it again, or uncompressed",
        code="invalid_encoding",
        status=400,
    )
