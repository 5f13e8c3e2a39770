"""Runs a client to its end, or to a limit, and leaves none of its processes behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.agents.clients.base import Client, Order, base_env

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """How a client ended."""

    exit_code: int | None
    """None where it ran into the limit; negative for a signal."""
    seconds: float
    log: Path
    """All it wrote."""

    @property
    def problem(self) -> str | None:
        """What was wrong with the end, in words."""
        if self.exit_code is None:
            return f"still running after {self.seconds:.0f} s"
        return f"exit code {self.exit_code}" if self.exit_code else None


@dataclass(frozen=True, slots=True)
class Limit:
    """When a client is ended, done or not."""

    seconds: float
    stopping: threading.Event
    """Set where all are to end."""


def run_client(client: Client, order: Order, *, log: Path, limit: Limit) -> Ended:
    """Run `client` on `order`."""
    launch = client.launch(order)
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            launch.argv,
            cwd=order.workdir,
            env=base_env(order.home) | dict(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        in_time = _wait(process.pid, started + limit.seconds, limit.stopping)
    finally:
        _kill_all(order.home)
        exit_code = process.wait()
    return Ended(exit_code if in_time else None, time.monotonic() - started, log)


def _wait(pid: int, deadline: float, stopping: threading.Event) -> bool:
    while time.monotonic() < deadline and not stopping.is_set():
        # It is reaped later: a process that is left behind must not get its id meanwhile.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(_POLL_S)
    return False


def _kill_all(home: Path) -> None:
    """SIGKILL to every process of a run. Its home, which no other process has, tells them.

    A process group is not enough: OpenClaw's worker begins a session of its own.
    """
    while found := [process for process in psutil.process_iter() if _home_of(process) == str(home)]:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=1)


def _home_of(process: psutil.Process) -> str | None:
    try:
        home: str | None = process.environ().get("HOME")
    except (psutil.Error, OSError):  # ended, or not ours to see
        return None
    return home
