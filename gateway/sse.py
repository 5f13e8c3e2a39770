"""Server-sent events from bytes, however the bytes are cut, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_ENDS = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")


class SseParser:
    """Feed bytes, get the data of each complete event. Lines end in LF or CRLF; comments are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of every event that `chunk` completes, in order."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for raw in lines:
            line = raw[:-1] if raw.endswith(b"\r") else raw
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                data, self._data = self._data, []
                yield data[0] if len(data) == 1 else b"\n".join(data)


def one_line(data: bytes) -> bytes:
    """JSON in which nothing ends a line, not even where Unicode has one.

    Some clients cut lines with `str.splitlines`: at U+0085, U+2028 and U+2029 too.
    """
    if data.isascii():
        return data
    return _LINE_ENDS.sub(lambda end: b"\\u%04x" % ord(end[0].decode()), data)


def sse_event(data: bytes, kind: str = "") -> bytes:
    """One event that carries the JSON `data`; `kind` adds an `event:` line."""
    if kind:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), one_line(data))
    return b"data: " + one_line(data) + b"\n\n"
