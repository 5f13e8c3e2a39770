"""`python -m tests.agents [CLIENT …]`: every client through the gateway, and the report."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from agentworld.contract.errors import AgentWorldError
from agentworld.platform.reports import print_table, write_report
from tests.agents.clients import ALL, Client
from tests.agents.clients.base import Order
from tests.agents.comparison import compare
from tests.agents.engine_log import Entry, Refused, Served
from tests.agents.install import InstallError, install
from tests.agents.running import run_client
from tests.agents.stack import Stack
from tests.agents.task import Task
from tests.support.engine.log import LogReader

_MIN_TURNS = 3
"""Two turns that call tools, and the last words."""


@dataclass(frozen=True, slots=True)
class Row:
    """One client's result, as it stands in the report."""

    client: str
    protocol: str
    stream: bool
    calls: int
    captured: int | None
    ids_exact: bool | None
    logprobs_aligned: bool | None
    prefix_class: str | None
    passed: bool
    problems: Sequence[str]
    seconds: float


def run_row(
    client: Client, stack: Stack, log: LogReader[Entry], directory: Path, *, limit_s: float, direct: bool
) -> Row:
    """Run one client and judge what became of it."""
    workdir, home = directory / "work", directory / "home"
    workdir.mkdir(parents=True)
    home.mkdir()
    mark = uuid.uuid4().hex[:8]
    task = Task(path=str(workdir / "notes.txt"), first=f"first → {mark}", second=f"second ✓ {mark}")
    trajectory_id, url = stack.register(prompt_id=f"{client.name}-{mark}")
    order = Order(url=url, task=task, workdir=workdir, home=home)
    list(log.new())
    ended = run_client(client, order, log=directory / "client.log", limit_s=limit_s)
    entries = list(log.new())
    served = [entry for entry in entries if isinstance(entry, Served)]
    problems = [f"asked for {entry.path}" for entry in entries if isinstance(entry, Refused)]
    problems += [problem for problem in (ended.problem,) if problem]
    if not task.done():
        problems.append("the file does not hold what was scripted")
    turns = [reply for reply in served if reply.kind == "turn"]
    if len(turns) < _MIN_TURNS:
        problems.append(f"{len(turns)} turns of the main conversation, {_MIN_TURNS} or more expected")
    compared = None if direct else compare(served, stack.captured(trajectory_id))
    if compared:
        problems += compared.problems
        problems += [] if compared.ids_exact else ["ids are not the engine's"]
        problems += [] if compared.logprobs_aligned else ["log-probabilities are not the engine's"]
    return Row(
        client=client.name,
        protocol=client.protocol,
        stream=client.stream,
        calls=len(served),
        captured=compared.captured if compared else None,
        ids_exact=compared.ids_exact if compared else None,
        logprobs_aligned=compared.logprobs_aligned if compared else None,
        prefix_class=compared.prefix_class if compared else None,
        passed=not problems,
        problems=problems,
        seconds=round(ended.seconds, 1),
    )


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
    parser.add_argument(
        "--keep", action="store_true", help="keep logs and work directories also of what passed"
    )
    return parser.parse_args()


def _print(rows: Sequence[Row]) -> None:
    columns = [
        "client",
        "protocol",
        "stream",
        "calls",
        "captured",
        "ids",
        "logprobs",
        "prefix",
        "s",
        "passed",
    ]
    cells = [
        [
            *(row.client, row.protocol, row.stream, row.calls, row.captured),
            *(row.ids_exact, row.logprobs_aligned, row.prefix_class, row.seconds, row.passed),
        ]
        for row in rows
    ]
    print_table("Agent clients", columns, cells, console=Console(width=None if sys.stdout.isatty() else 140))
    for row in rows:
        for problem in row.problems:
            print(f"{row.client}: {problem}")


def main() -> int:
    """Run and report. 0 when every row passed."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    clients = _clients(arguments.clients)
    directory = Path(tempfile.mkdtemp(prefix="agentworld-agents-"))
    rows = []
    try:
        install()
        with Stack(directory / "stack", gateway=not arguments.direct, reasoning=arguments.reasoning) as stack:
            log = LogReader(stack.engine_log, Entry)
            for client in clients:
                folder = directory / client.name
                row = run_row(client, stack, log, folder, limit_s=arguments.limit_s, direct=arguments.direct)
                print(f"{row.client}: {'passed' if row.passed else 'FAILED'} in {row.seconds} s", flush=True)
                rows.append(row)
    except (InstallError, AgentWorldError) as exc:
        print(exc, file=sys.stderr)
        return 1
    _print(rows)
    passed = all(row.passed for row in rows)
    if not arguments.direct:
        write_report("test-agents", {"rows": [asdict(row) for row in rows]})
    if passed and not arguments.keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"logs and work directories: {directory}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
