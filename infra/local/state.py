"""The state file `stack.json`: who runs in a data directory, for other commands and for recovery.

A lock file, held by the supervisor while it lives, says whether the stack runs. A state file without
its lock is stale: the supervisor was killed, and what it lists is left over.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, Literal

import psutil
from pydantic import BaseModel, ValidationError

from agentworld.contract.errors import AgentWorldError
from infra.local.options import StackOptions
from infra.local.units import started_at

_SAME_START_S = 0.05
_ORPHAN_STOP_S = 10.0


class StackRuns(AgentWorldError):
    """Another stack uses this data directory."""


class ProcessState(BaseModel):
    """One process as it was last seen."""

    name: str
    pid: int | None
    started_at: float | None
    url: str
    log: Path
    state: str
    restarts: int = 0

    @property
    def is_alive(self) -> bool:
        """Whether that very process still runs, not another with its pid."""
        if self.pid is None or self.started_at is None:
            return False
        now = started_at(self.pid)
        return now is not None and abs(now - self.started_at) < _SAME_START_S


class StackState(BaseModel):
    """A stack. `processes` stands in the order in which they are stopped."""

    supervisor_pid: int
    phase: Literal["starting", "running", "stopping"]
    options: StackOptions
    kafka: str
    clickhouse: str
    gateways: list[str]
    processes: list[ProcessState]


def state_path(data_dir: Path) -> Path:
    """Where the state file lies."""
    return data_dir / "stack.json"


def read_state(data_dir: Path) -> StackState | None:
    """The state file, None where there is no usable one."""
    try:
        return StackState.model_validate_json(state_path(data_dir).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_state(data_dir: Path, state: StackState) -> None:
    """Replace the state file at once."""
    path = state_path(data_dir)
    partial = path.with_suffix(".partial")
    partial.write_text(state.model_dump_json(indent=2) + "\n")
    partial.replace(path)


def remove_state(data_dir: Path) -> None:
    """The stack is down."""
    state_path(data_dir).unlink(missing_ok=True)


class DirectoryLock:
    """Held while a stack runs in a directory; the kernel releases it when the holder dies."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Raises `StackRuns` naming the process that holds it."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        file = (self._data_dir / "stack.lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise StackRuns(
                f"a stack already runs in {self._data_dir} (process {holder}): "
                "stop it with `agentworld down`, or use another --data-dir"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let the next one in."""
        if self._file:
            self._file.close()
            self._file = None


def is_running(data_dir: Path) -> bool:
    """Whether a supervisor holds the directory."""
    if not (data_dir / "stack.lock").exists():
        return False
    with (data_dir / "stack.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def end_orphans(state: StackState) -> list[str]:
    """Stop what a killed supervisor left running, in order; the names of what there was."""
    ended = []
    for process in state.processes:
        if not process.is_alive or process.pid is None:
            continue
        ended.append(process.name)
        try:
            orphan = psutil.Process(process.pid)
            orphan.terminate()
            try:
                orphan.wait(_ORPHAN_STOP_S)
            except psutil.TimeoutExpired:
                orphan.kill()
                orphan.wait(_ORPHAN_STOP_S)
        except psutil.NoSuchProcess:
            continue
    return ended
