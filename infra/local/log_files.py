"""One log file per process, bounded in size: `<name>.log` and the `<name>.log.1` before it."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

MAX_LOG_BYTES = 16 * 1024 * 1024
_FOLLOW_S = 0.2


def bound(log_path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Move what is there to `.1` and empty the file if it is too large.

    The writer keeps its descriptor, opened for appending; lines it writes in this moment may be lost.
    """
    try:
        if log_path.stat().st_size <= max_bytes:
            return
    except FileNotFoundError:
        return
    shutil.copyfile(log_path, log_path.with_name(log_path.name + ".1"))
    with log_path.open("r+b") as file:
        file.truncate(0)


def last_lines(log_path: Path, count: int) -> list[str]:
    """The last lines of a log, without line ends."""
    with log_path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


def follow(log_paths: list[Path]) -> Iterator[tuple[Path, str]]:
    """Lines as they are written, from now on, for ever."""
    positions = {path: path.stat().st_size if path.exists() else 0 for path in log_paths}
    while True:
        for path, position in positions.items():
            if not path.exists():
                continue
            start = position if position <= path.stat().st_size else 0
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            positions[path] = start + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield path, line
        time.sleep(_FOLLOW_S)
