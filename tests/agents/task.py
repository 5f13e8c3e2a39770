"""The task that every client gets: put one line into a file, then another below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TASK = re.compile(
    r"Create the file (?P<path>/\S+) with the line '(?P<first>[^'\n]+)', "
    r"then append the line '(?P<second>[^'\n]+)'"
)


@dataclass(frozen=True, slots=True)
class Task:
    """What the file is to hold in the end."""

    path: str
    """Absolute."""
    first: str
    second: str

    @property
    def prompt(self) -> str:
        """The task in words, as the client is told."""
        return (
            f"Create the file {self.path} with the line '{self.first}', then append the line "
            f"'{self.second}' to it. Use your tools, one step after the other, and look at the result."
        )

    @classmethod
    def find(cls, text: str) -> Self | None:
        """The task told in `text`, if any."""
        found = _TASK.search(text)
        return cls(**found.groupdict()) if found else None

    def done(self) -> bool:
        """Whether the file holds both lines, each once and in order."""
        path = Path(self.path)
        return path.is_file() and path.read_text() == f"{self.first}\n{self.second}\n"
