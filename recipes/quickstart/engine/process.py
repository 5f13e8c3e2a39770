"""The engine as a child process on a free port."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local.child import Child
from infra.local.ports import LOOPBACK, free_port

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """An engine that runs."""

    url: str
    """Base URL of its OpenAI-compatible API."""
    journal: Path
    """Its own account of what it sampled."""
    pid: int


@contextmanager
def engine_process(
    journal: Path, *, log_path: Path, options: tuple[str, ...] = ()
) -> Iterator[EngineProcess]:
    """Start an engine and stop it afterwards. `options` are those of its command line.

    Raises `LaunchError` with the end of its log when it does not come up.
    """
    port = free_port()
    child = Child(
        [
            *(sys.executable, "-m", "recipes.quickstart.engine"),
            *("--port", str(port), "--log", str(journal.absolute()), *options),
        ],
        env=os.environ,
        log_path=log_path,
    )
    child.start()
    try:
        child.wait_ready("the demo engine", lambda: _answers(port), timeout_s=_START_TIMEOUT_S)
        yield EngineProcess(f"http://{LOOPBACK}:{port}/v1", journal, child.pid or 0)
    finally:
        child.stop(timeout_s=_STOP_TIMEOUT_S)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
