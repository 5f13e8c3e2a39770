"""An engine's own account of what it was asked and what it sampled, one JSON line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Generic, TypeVar

import msgspec

Entry = TypeVar("Entry")


class EngineLog:
    """Appends to a file; a line is with the operating system before the reply ends."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, entry: msgspec.Struct) -> None:
        """Note one request."""
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class LogReader(Generic[Entry]):
    """Reads what was added since it read last. `kind`: the type of an entry, or the union of their types."""

    def __init__(self, path: Path, kind: type[Entry] | UnionType) -> None:
        self._path = path
        self._offset = 0
        self._decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(kind)

    def new(self) -> Iterator[Entry]:
        """Entries not read yet."""
        with self._path.open("rb") as lines:
            lines.seek(self._offset)
            for line in lines:
                if not line.endswith(b"\n"):  # it is being written
                    return
                self._offset += len(line)
                yield self._decoder.decode(line)
