"""Running a stack in this process until a signal, or as a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from agentworld.contract.errors import Unavailable
from infra.local.child import Child, LaunchError, log_tail
from infra.local.log_files import bound
from infra.local.options import StackOptions
from infra.local.stack import LocalStack
from infra.local.state import StackRuns, StackState, end_orphans, is_running, read_state, remove_state

_POLL_S = 0.1
_DETACH_TIMEOUT_S = 120.0
_DOWN_TIMEOUT_S = 180.0


class _StopAsked(BaseException):
    """A signal arrived while the stack was starting."""


def run_until_stopped(options: StackOptions, *, on_ready: Callable[[LocalStack], None]) -> None:
    """Start, call `on_ready`, wait for SIGINT or SIGTERM, stop in order. Call it from the main thread.

    A second signal while stopping changes nothing: the order is what keeps acknowledged steps.
    """
    stopping = threading.Event()
    starting = True

    def asked(*_: object) -> None:
        stopping.set()
        if starting:
            raise _StopAsked

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked)
    stack = LocalStack(options)
    try:
        stack.start()
        starting = False
        on_ready(stack)
        stopping.wait()
    except _StopAsked:
        pass
    finally:
        starting = False
        stack.stop()


def detach(options: StackOptions) -> StackState:
    """Start a stack that outlives this process; return its state once it runs.

    Raises `StackRuns` or `LaunchError` with what the supervisor said.
    """
    data_dir = options.data_dir.absolute()
    state = read_state(data_dir)
    if is_running(data_dir):
        raise StackRuns(
            f"a stack already runs in {data_dir} (process {state.supervisor_pid if state else 'unknown'}): "
            "stop it with `agentworld down`, or use another --data-dir"
        )
    log_path = data_dir / "logs" / "stack.log"
    bound(log_path)
    said_before = log_path.stat().st_size if log_path.exists() else 0
    argv = [
        sys.executable,
        "-m",
        "infra.local",
        options.model_copy(update={"data_dir": data_dir}).model_dump_json(),
    ]
    supervisor = Child(argv, env=os.environ, log_path=log_path)
    supervisor.start()
    deadline = time.monotonic() + _DETACH_TIMEOUT_S
    while supervisor.alive and time.monotonic() < deadline:
        state = read_state(data_dir)
        if state and state.phase == "running" and state.supervisor_pid == supervisor.pid:
            return state
        time.sleep(_POLL_S)
    supervisor.stop(timeout_s=_DOWN_TIMEOUT_S)
    said = log_tail(log_path, max(1, log_path.stat().st_size - said_before))
    raise LaunchError(f"the stack did not start; {log_path} says:\n{said}")


def take_down(data_dir: Path) -> list[str]:
    """Stop the stack of a directory, or what a killed supervisor left; what was stopped, empty if nothing.

    Raises `Unavailable` when it does not end in time.
    """
    data_dir = data_dir.absolute()
    state = read_state(data_dir)
    if not is_running(data_dir):
        ended = end_orphans(state) if state else []
        remove_state(data_dir)
        return ended
    if state is None:
        raise Unavailable(f"the stack in {data_dir} is just starting or stopping: try again")
    names = [process.name for process in state.processes]
    supervisor = psutil.Process(state.supervisor_pid)
    supervisor.terminate()
    deadline = time.monotonic() + _DOWN_TIMEOUT_S
    while is_running(data_dir):
        if time.monotonic() > deadline:
            raise Unavailable(f"process {supervisor.pid} did not end within {_DOWN_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
    return names
