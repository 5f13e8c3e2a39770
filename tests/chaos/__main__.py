"""`python -m tests.chaos`: faults under load on real Apache Kafka, and what they did to the data."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from agentworld.contract.errors import AgentWorldError
from agentworld.contract.topics import GROUPS, TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.reports import print_table, write_report
from agentworld.platform.scan import scan_topic
from infra.local.stack import LocalStack
from tests.chaos.arrived import Arrived, arrived_in
from tests.chaos.auditor import VIOLATIONS, Audit, audit
from tests.chaos.expected import Expected
from tests.chaos.faults import ALL, Fault, Phase
from tests.chaos.load import Load
from tests.chaos.stack import BATCH_GROUPS, chaos_stack

LEAST_GROUPS, LEAST_KILLS = 200, 50
_CLIENTS = 6
_SETTLED_S = 120.0
CONSUMERS = {
    TRAJECTORY_EVENTS.name: ("stream-processors.trajectory", "sinks.clickhouse"),
    TRAJECTORIES.name: ("stream-processors.group", "sinks.clickhouse"),
    GROUPS.name: ("stream-processors.batch", "sinks.clickhouse"),
}
"""Who reads each topic, and puts aside what it cannot read."""


async def run_phase(stack: LocalStack, fault: Fault, number: int, groups: int, seed: int) -> Phase:
    """One fault while the rollouts of one run go on; both to their end."""
    acted = asyncio.Event()
    load = Load(
        Expected(f"c{number}-{fault.name.replace(' ', '-')}"),
        groups,
        lambda: not acted.is_set(),
        lambda: stack.gateway_urls,
        f"{seed}/{number}",
        _CLIENTS,
    )
    phase = Phase(stack, load, random.Random(f"{seed}/{number}/fault"))

    async def act() -> None:
        try:
            await fault.act(phase, fault.times)
        finally:
            acted.set()

    async with asyncio.TaskGroup() as both:
        both.create_task(load.run())
        both.create_task(act())
    return phase


async def settled(stack: LocalStack, phases: list[tuple[Fault, Phase]]) -> tuple[Arrived, list[Audit]]:
    """What arrived, once all has, or once patience is over."""
    deadline = time.monotonic() + _SETTLED_S
    settled_once = False
    while True:
        arrived = await asyncio.to_thread(arrived_in, stack)
        audits = [audit(phase.load.expected, arrived, batch_groups=BATCH_GROUPS) for _, phase in phases]
        lost = any(found.lost for found in audits)
        if time.monotonic() > deadline or (settled_once and not lost):
            return arrived, audits
        # What comes twice may come late: once nothing is missing, look again.
        settled_once = not lost
        await asyncio.sleep(3.0 if settled_once else 1.0)


def poison_left(stack: LocalStack, phases: list[tuple[Fault, Phase]]) -> int:
    """Poison that a consumer did not put aside, and dead letters that are no poison of ours."""
    sent = {
        (spec.name, value, consumer)
        for _, phase in phases
        for spec, value in phase.poison
        for consumer in CONSUMERS[spec.name]
    }
    found = set()
    for spec in (TRAJECTORY_EVENTS, TRAJECTORIES, GROUPS):
        for record in scan_topic(stack.kafka, spec, dead_letters=True):
            headers = dict(record.headers)
            if headers.get("dlq-reason") == b"malformed":
                found.add((spec.name, record.value or b"", headers["dlq-consumer"].decode()))
    return len(sent ^ found)


async def _run(arguments: argparse.Namespace, seed: int, directory: Path) -> dict[str, Any]:
    began = time.monotonic()
    phases: list[tuple[Fault, Phase]] = []
    with chaos_stack(directory) as stack:
        while True:
            for fault in ALL:
                started = time.monotonic()
                phase = await run_phase(stack, fault, len(phases), arguments.groups, seed)
                phases.append((fault, phase))
                print(f"{fault.name}: {phase.done} times in {time.monotonic() - started:.0f} s", flush=True)
            if time.monotonic() - began >= 60 * arguments.minutes:
                break
        await asyncio.to_thread(stack.wait_healthy, timeout_s=90)
        _, audits = await settled(stack, phases)
        strays = await asyncio.to_thread(poison_left, stack, phases)
    rows = [
        {
            "fault": fault.name,
            "times": phase.done,
            "kills": phase.kills,
            "at_work": phase.kills_at_work,
            "groups": found.groups,
            "answered": found.answered,
            "asked_again": phase.load.tries,
            **{name: getattr(found, name) for name in VIOLATIONS},
            "notes": found.notes[:20],
        }
        for (fault, phase), found in zip(phases, audits, strict=True)
    ]
    report: dict[str, Any] = {
        name: sum(row[name] for row in rows)
        for name in ("groups", "kills", "at_work", "answered", *VIOLATIONS)
    }
    return report | {
        "poison_astray": strays,
        "broker": "apache",
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "phases": rows,
    }


def problems_of(report: dict[str, Any]) -> list[str]:
    """Why the run does not pass; empty where it does."""
    found = [f"{report[name]} {name}" for name in (*VIOLATIONS, "poison_astray") if report[name]]
    if report["groups"] < LEAST_GROUPS:
        found.append(f"only {report['groups']} groups, {LEAST_GROUPS} are wanted")
    if report["kills"] < LEAST_KILLS:
        found.append(f"only {report['kills']} kills, {LEAST_KILLS} are wanted")
    return found


def _print(report: dict[str, Any]) -> None:
    columns = ("fault", "times", "kills", "at_work", "groups", "answered", "asked_again", *VIOLATIONS)
    total = {"fault": "all", "times": None, "asked_again": None} | report
    rows = [[row[name] for name in columns] for row in (*report["phases"], total)]
    print_table(
        f"Chaos on Apache Kafka, seed {report['seed']}, {report['seconds']} s",
        columns,
        rows,
        console=Console(width=None if sys.stdout.isatty() else 150),
    )
    for row in report["phases"]:
        for note in row["notes"]:
            print(f"  {row['fault']}: {note}")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def main() -> int:
    """Run, print, report. 0 when nothing was lost, doubled, misordered, misplaced or released twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of everything that is drawn by chance")
    parser.add_argument("--minutes", type=float, default=0, help="go on with all faults for at least so long")
    parser.add_argument("--groups", type=int, default=20, help="least groups in each phase")
    parser.add_argument("--keep", action="store_true", help="keep data and logs also where all went well")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    directory = Path(tempfile.mkdtemp(prefix="agentworld-chaos-"))
    print(f"seed {seed}, data in {directory}", flush=True)
    Path("reports/chaos.json").unlink(missing_ok=True)
    report: dict[str, Any] | None = None
    failed = False
    try:
        report = asyncio.run(_run(arguments, seed, directory))
    except* (AgentWorldError, AssertionError, OSError, TimeoutError) as group:
        for error in _leaves(group):
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        failed = True
    if failed or report is None:
        print(f"FAILED: not carried out. Data and logs: {directory}", file=sys.stderr)
        return 1
    _print(report)
    write_report("chaos", report)
    problems = problems_of(report)
    if problems:
        print(f"FAILED: {'; '.join(problems)}. Data and logs: {directory}")
        return 1
    if not arguments.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
