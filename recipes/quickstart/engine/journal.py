"""The engine's own account of what it sampled: one JSON line per choice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from recipes.quickstart.engine.generation import Choice


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One reply as it was sampled."""

    id: str
    """The completion's id, as the client received it."""
    choice: int
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    finish_reason: str


class Journal:
    """Appends to a file; a line is with the operating system before the reply ends."""

    def __init__(self, path: Path | None) -> None:
        self._fd: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, completion_id: str, prompt_ids: Sequence[int], choice: Choice) -> None:
        """Note one reply."""
        if self._fd is None:
            return
        entry = Entry(
            id=completion_id,
            choice=choice.index,
            prompt_ids=list(prompt_ids),
            response_ids=choice.ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason or "abort",
        )
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read_journal(path: Path) -> Iterator[Entry]:
    """The entries of a journal; a last line cut short by a crash is left out."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line, type=Entry)
