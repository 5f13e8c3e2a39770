"""The child process: `python -m infra.local.clickhouse_engine ROOT` serves ROOT/data over HTTP.

It runs the engine of the chdb wheel (clickhouse-local's listen mode) under the configuration
in ROOT, until an admin's SYSTEM SHUTDOWN or SIGTERM.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_LISTEN_UNTIL_SHUTDOWN = (
    "SYSTEM START LISTEN HTTP; "
    "SELECT count() FROM numbers(1000000000) WHERE sleepEachRow(3) "
    "SETTINGS max_block_size=1, max_threads=1, function_sleep_max_microseconds_per_block=0, "
    "max_execution_time=0"
)


def serve(root: Path) -> int:
    """Listen until shut down; the exit code."""
    # The wheel's __init__ opens an engine of its own under the config.xml of the working
    # directory: import it where there is none.
    empty = root / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    os.chdir(empty)
    os.environ["HOME"] = str(empty)
    engine: Any = import_module("chdb")._chdb
    os.chdir(root)
    try:
        result = engine.query(_LISTEN_UNTIL_SHUTDOWN, "TSV", path=str(root / "data"))
    except Exception as exc:
        sys.stderr.write(f"engine failed: {exc}\n")
        return 1
    if message := result.error_message():
        sys.stderr.write(f"engine ended: {message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]).absolute()))
