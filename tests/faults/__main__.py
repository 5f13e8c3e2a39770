"""`python -m tests.faults [FAULT …]`: each fault under load, and the report."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console

from agentworld.contract.errors import AgentWorldError
from agentworld.platform.reports import print_table, write_report
from tests.faults.judgement import Judgement
from tests.faults.scenarios import ALL, Bench, Fault, Finding, Options
from tests.faults.stack import Stack

_COLUMNS = (
    *("calls", "answered", "lost", "duplicated", "inexact", "failed", "failed_captured"),
    *("refused", "broken", "repeated"),
)
Row = dict[str, Any]


async def run_row(fault: Fault, stack: Stack, options: Options) -> Row:
    """Run one fault and judge what became of the calls."""
    started = time.monotonic()
    bench = Bench.of(fault, stack, options)
    try:
        finding = await fault.run(bench)
    except (AgentWorldError, AssertionError, OSError, TimeoutError, aiohttp.ClientError) as exc:
        seen = Judgement(calls=len(bench.load.calls), problems=[f"not judged: {type(exc).__name__}: {exc}"])
        finding = Finding(seen)
        await bench.gateway.kill()
    finally:
        stack.thaw_broker()
    row = {"fault": fault.name, **asdict(finding.judgement), **finding.figures}
    row["seconds"] = round(time.monotonic() - started, 1)
    row["passed"] = _passed(finding.judgement)
    return row


def _passed(row: Judgement) -> bool:
    harm = row.lost + row.duplicated + row.inexact + row.registrations_lost
    return not harm and not row.problems and row.failed == row.failed_captured


def _faults(names: Sequence[str]) -> list[Fault]:
    known = {fault.name: fault for fault in ALL}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"unknown fault {', '.join(unknown)}: choose among {', '.join(known)}")
    return [known[name] for name in names] or list(ALL)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(f.name for f in ALL)}")
    parser.add_argument("--broker", choices=["embedded", "apache"], default="apache")
    parser.add_argument("--clients", type=int, default=24, help="calls under way at a time")
    parser.add_argument("--calls", type=int, default=240, help="calls in rows of the engine and the clients")
    parser.add_argument("--outage-s", type=float, default=30.0, help="how long the broker is away")
    parser.add_argument("--kills", type=int, default=50, help="of the gateway; a fifth with the broker away")
    parser.add_argument("--seed", type=int, default=None, help="of everything that is drawn by chance")
    parser.add_argument("--keep", action="store_true", help="keep logs also where all passed")
    return parser.parse_args()


def _print(rows: Sequence[Row]) -> None:
    columns = ["fault", *_COLUMNS, "s", "passed"]
    cells = [[row["fault"], *(row[name] for name in _COLUMNS), row["seconds"], row["passed"]] for row in rows]
    print_table("Faults", columns, cells, console=Console(width=None if sys.stdout.isatty() else 150))


async def _run(arguments: argparse.Namespace, directory: Path, rows: list[Row]) -> None:
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"broker: {arguments.broker}, seed: {seed}", flush=True)
    options = Options(
        clients=arguments.clients,
        calls=arguments.calls,
        outage_s=arguments.outage_s,
        kills=arguments.kills,
        rng=random.Random(seed),
    )
    with Stack(directory, broker=arguments.broker) as stack:
        for fault in _faults(arguments.faults):
            row = await run_row(fault, stack, options)
            told = "passed" if row["passed"] else "FAILED"
            print(f"{row['fault']}: {told} in {row['seconds']} s", flush=True)
            for problem in row["problems"]:
                print(f"  {problem}", flush=True)
            rows.append(row)


def main() -> int:
    """Run and report. 0 when every row passed."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    _faults(arguments.faults)
    directory = Path(tempfile.mkdtemp(prefix="agentworld-faults-"))
    rows: list[Row] = []
    try:
        asyncio.run(_run(arguments, directory, rows))
    except AgentWorldError as exc:
        print(exc, file=sys.stderr)
        return 1
    _print(rows)
    write_report("test-faults", {"broker": arguments.broker, "rows": rows})
    passed = all(row["passed"] for row in rows)
    if passed and not arguments.keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"logs: {directory}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
