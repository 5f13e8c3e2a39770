"""The engine's own account of each reply, one JSON line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec


class Served(msgspec.Struct, frozen=True, kw_only=True, tag="served"):
    """One reply as it was sampled."""

    id: str
    """The completion's id."""
    kind: Literal["turn", "side"]
    model: str
    stream: bool
    prompt_ids: list[int]
    response_ids: list[int]
    """As far as it was sent, where the client went away."""
    logprobs: list[float]
    finish_reason: str
    """`abort` where the client went away."""
    offered: list[str]
    """Names of the tools in the request."""
    called: list[str]
    """Names of the tools called."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """A request this engine has no answer for."""

    path: str
    status: int


class EngineLog:
    """Appends to a file; a line is with the operating system before the reply ends."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, entry: Served | Refused) -> None:
        """Note one request."""
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class LogReader:
    """Reads what was added since it read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Served | Refused]:
        """Entries not read yet."""
        with self._path.open("rb") as lines:
            lines.seek(self._offset)
            for line in lines:
                self._offset += len(line)
                yield msgspec.json.decode(line, type=Served | Refused)
