"""`python -m tests.agents [CLIENT …]`: every client through the gateway, and the report."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from agentworld.contract.errors import AgentWorldError
from agentworld.platform.reports import print_table, write_report
from tests.agents.clients import ALL, Client
from tests.agents.install import InstallError, install
from tests.agents.rows import Row, run_row
from tests.agents.running import Limit
from tests.agents.stack import Stack

_COLUMNS = {
    "client": "client",
    "protocol": "protocol",
    "stream": "stream",
    "calls": "calls",
    "captured": "captured",
    "ids": "ids_exact",
    "logprobs": "logprobs_aligned",
    "prefix": "prefix_class",
    "kept": "prefix_kept",
    "expanded": "expansions_exact",
    "replies": "replies_exact",
    "s": "seconds",
    "passed": "passed",
}
"""Heads of the table, and the fields below them."""
_SLOWEST = "openclaw"


def _clients(names: Sequence[str]) -> list[Client]:
    known = {client.name: client for client in ALL}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"unknown client {', '.join(unknown)}: choose among {', '.join(known)}")
    return [known[name] for name in names] or list(ALL)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.agents", description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(c.name for c in ALL)}")
    parser.add_argument(
        "--direct", action="store_true", help="against the engine itself, without gateway or report"
    )
    parser.add_argument(
        "--reasoning", action=argparse.BooleanOptionalAction, default=True, help="think before each turn"
    )
    parser.add_argument("--limit-s", type=float, default=600.0, help="longest a client may run")
    parser.add_argument("--jobs", type=int, default=2, help="how many clients run at a time")
    parser.add_argument(
        "--keep", action="store_true", help="keep logs and work directories also of what passed"
    )
    return parser.parse_args()


def _run_all(clients: Sequence[Client], directory: Path, arguments: argparse.Namespace) -> list[Row]:
    """The rows, in the clients' order. The slowest clients begin first."""
    direct, stopping = arguments.direct, threading.Event()

    def run(client: Client) -> Row:
        limit = Limit(arguments.limit_s, stopping)
        row = run_row(client, stack, directory / client.name, limit=limit, direct=direct)
        print(f"{row.client}: {'passed' if row.passed else 'FAILED'} in {row.seconds} s", flush=True)
        return row

    with (
        Stack(directory / "stack", gateway=not direct, reasoning=arguments.reasoning) as stack,
        ThreadPoolExecutor(max_workers=arguments.jobs) as threads,
    ):
        order = sorted(clients, key=lambda client: not client.name.startswith(_SLOWEST))
        running = {client.name: threads.submit(run, client) for client in order}
        try:
            return [running[client.name].result() for client in clients]
        finally:
            stopping.set()
            threads.shutdown(cancel_futures=True)


def _print(rows: Sequence[Row]) -> None:
    cells = [[getattr(row, field) for field in _COLUMNS.values()] for row in rows]
    console = Console(width=None if sys.stdout.isatty() else 160)
    print_table("Agent clients", list(_COLUMNS), cells, console=console)
    for row in rows:
        for problem in row.problems:
            print(f"{row.client}: {problem}")


def main() -> int:
    """Run and report. 0 when every row passed."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    clients = _clients(arguments.clients)
    directory = Path(tempfile.mkdtemp(prefix="agentworld-agents-"))
    try:
        install()
        started = time.monotonic()
        rows = _run_all(clients, directory, arguments)
    except (InstallError, AgentWorldError) as exc:
        print(exc, file=sys.stderr)
        return 1
    _print(rows)
    passed = [row for row in rows if row.passed]
    print(f"{len(rows)} clients in {time.monotonic() - started:.0f} s")
    print(f"{len(passed)} passed, {len(rows) - len(passed)} failed")
    if not arguments.direct:
        write_report("test-agents", {"rows": [asdict(row) for row in rows]})
    if len(passed) == len(rows) and not arguments.keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"logs and work directories: {directory}")
    return 0 if len(passed) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
