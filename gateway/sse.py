"""Server-sent events from bytes, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterator


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


def sse_event(data: bytes) -> bytes:
    """One event that carries `data`, which holds no line break."""
    return b"data: " + data + b"\n\n"
