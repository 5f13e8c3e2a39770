"""What a client's module must say, and what it is told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tests.agents.comparison import PrefixClass
from tests.agents.install import CLI_BIN, NODE_BIN, PYTHON
from tests.agents.task import Task

WireProtocol = Literal["chat_completions", "responses", "messages"]
MODEL = "scripted"


@dataclass(frozen=True, slots=True)
class Order:
    """One run: whom to ask, what to do, where."""

    url: str
    """Base URL with trajectory and prompt in it, without `/v1`."""
    key: str
    """API key, of this run alone: the gateway hands it on, and the engine notes it."""
    task: Task
    workdir: Path
    """Empty; the file of the task is to stand in it."""
    home: Path
    """Empty; HOME of the client."""

    @property
    def v1(self) -> str:
        """Base URL as OpenAI's clients want it."""
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to run in the work directory."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Beside `base_env`."""


class Client(Protocol):
    """One row of the report."""

    @property
    def name(self) -> str:
        """Name in the report and on the command line."""
        ...

    @property
    def protocol(self) -> WireProtocol:
        """The wire protocol it speaks."""
        ...

    @property
    def stream(self) -> bool:
        """Whether it asks for streams."""
        ...

    @property
    def prefix_class(self) -> PrefixClass:
        """How its prompts go on from one turn to the next, at worst; a row that does worse fails."""
        ...

    def launch(self, order: Order) -> Launch:
        """Write its configuration into the order's home; the command to run."""
        ...


def base_env(home: Path) -> dict[str, str]:
    """The environment of every client: its own home, Node 24 first, nothing else of ours."""
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(NODE_BIN), os.environ.get("PATH", "/usr/bin:/bin")]),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "CI": "1",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
    }


def cli(name: str) -> str:
    """Path of a CLI that npm installed."""
    return str(CLI_BIN / name)


def python(*argv: str) -> list[str]:
    """A command in the clients' own Python environment."""
    return [str(PYTHON), *argv]
