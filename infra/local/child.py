"""One child process in its own session, its output appended to one file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agentworld.contract.errors import AgentWorldError

_POLL_S = 0.02
_TAIL_BYTES = 2000


class LaunchError(AgentWorldError):
    """A process could not be started; the message says what to do."""


def log_tail(log_path: Path, max_bytes: int = _TAIL_BYTES) -> str:
    """The end of a log file, for error messages; empty when there is none."""
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, log_path.stat().st_size - max_bytes))
            return file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


class Child:
    """Starts `argv` in a new session, so that a Ctrl-C in the terminal reaches only us."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, cwd: Path | None = None
    ) -> None:
        self._argv = list(argv)
        self._env = dict(env)
        self._log_path = log_path
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id once started, also after its death."""
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        """None while it runs or before it started; negative for a signal."""
        return self._process.poll() if self._process else None

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it. Raises `LaunchError` when the program is missing."""
        if self.alive:
            raise LaunchError(f"{self._argv[0]} already runs as process {self.pid}")
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._argv,
                    env=self._env,
                    cwd=self._cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as exc:
                raise LaunchError(f"{self._argv[0]} could not be started: {exc}") from exc

    def wait_ready(self, name: str, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Return once `ready()`. Raises `LaunchError` with the log's end if it dies or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.alive:
                raise LaunchError(f"{name} ended with code {self.returncode} while starting; {self._where()}")
            if time.monotonic() > deadline:
                self.kill()
                raise LaunchError(f"{name} was not ready within {timeout_s:g} s; {self._where()}")
            time.sleep(_POLL_S)

    def _where(self) -> str:
        return f"see {self._log_path}, which ends:\n{log_tail(self._log_path)}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        if self._process and self.alive:
            self._process.send_signal(number)

    def stop(self, *, timeout_s: float) -> int | None:
        """SIGTERM, wait, and SIGKILL to the session after `timeout_s`. Returns the exit code."""
        if self._process is None:
            return None
        self.signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def kill(self) -> None:
        """SIGKILL to the whole session, and reap."""
        if self._process is None:
            return
        if self.alive:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()
        self._process.wait(10)
