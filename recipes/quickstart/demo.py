"""The demo: brings the stack up, runs the recipe, waits for its batches, and checks every token."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.client import Client
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import GroupDecision
from agentworld.contract.ids import new_id
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batch_archive import BatchArchive
from agentworld.platform.batches import BatchReader
from agentworld.platform.clickhouse import connect
from agentworld.platform.reader import KafkaPlaceReader
from agentworld.platform.reports import print_table, write_report
from agentworld.platform.resolved import ResolvedBatch
from agentworld.platform.scan import scan_topic
from infra.local.stack import LocalStack, StackOptions
from recipes.quickstart import evidence
from recipes.quickstart.engine.process import EngineProcess, engine_process
from recipes.quickstart.tables import print_answers, print_batch, print_groups
from recipes.quickstart.verification import Evidence, Verdict, verify

if TYPE_CHECKING:
    from recipes.quickstart.rollouts import RunSummary

_FULL_BATCH_GROUPS = 8
_POLL_S = 0.2
_STALL_S = 60.0
"""Without progress for this long, the wait ends."""


def _new_run_id() -> str:
    return f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{new_id()[-4:]}"


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What to run, and where."""

    tasks: int = 16
    rollouts: int = 4
    concurrency: int = 8
    seed: int = 7
    data_dir: Path = Path(".agentworld")
    report: Path = Path("reports/demo.json")
    run_id: str = field(default_factory=_new_run_id)
    """A run of its own each time: the figures add up on a data directory that was used before."""

    @property
    def batch_groups(self) -> int:
        """Groups in a batch: few enough that there is one."""
        return min(_FULL_BATCH_GROUPS, self.tasks)


def run_demo(plan: DemoPlan, console: Console, *, keep_up: bool = False) -> bool:
    """Run it and print what came of it; whether everything adds up. The report is written either way.

    Raises `AgentWorldError` where the stack or the engine cannot be started.
    """
    began = time.monotonic()
    journal = plan.data_dir / "demo" / f"{plan.run_id}.jsonl"
    with (
        engine_process(journal, log_path=plan.data_dir / "logs" / "demo-engine.log") as engine,
        _started(plan, engine, console) as stack,
        closing(connect(stack.clickhouse)) as clickhouse,
    ):
        summary = _rollouts(plan, stack, console)
        _await_groups(plan, clickhouse, console)
        verdict, decisions = _verify(plan, stack, clickhouse, engine, summary)
        seconds = round(time.monotonic() - began, 1)
        batch, trouble = _first_batch(plan, stack, clickhouse)
        _show(plan, console, stack, clickhouse, decisions, batch)
        verdict.problems.extend(trouble)
        figures = verdict.figures | {"seconds": seconds}
        path = write_report(
            plan.report.stem,
            figures | {"problems": verdict.problems, "run": summary.figures()},
            directory=plan.report.parent,
        )
        _print_places(console, stack, engine, plan)
        _conclude(console, figures, verdict, path)
        if keep_up:
            console.print("Everything stays up. Ctrl-C stops it.")
            _until_interrupted()
    return not verdict.problems


@contextmanager
def _started(plan: DemoPlan, engine: EngineProcess, console: Console) -> Iterator[LocalStack]:
    stack = LocalStack(
        StackOptions(
            data_dir=plan.data_dir,
            upstream_url=engine.url,
            environment={"AGENTWORLD_PROCESSORS_BATCH_GROUPS": str(plan.batch_groups)},
        )
    )
    # The agent's SDK takes about as long to import as the stack to start.
    threading.Thread(target=import_module, args=("recipes.quickstart.rollouts",), daemon=True).start()
    with console.status("Starting the broker, ClickHouse and the services …"):
        stack.start()
    try:
        yield stack
    finally:
        with console.status("Stopping …"):
            stack.stop()


def _rollouts(plan: DemoPlan, stack: LocalStack, console: Console) -> RunSummary:
    from recipes.quickstart.rollouts import Plan, RolloutResult, run  # noqa: PLC0415

    total = plan.tasks * plan.rollouts
    with _progress(console) as progress:
        bar = progress.add_task("Rollouts", total=total, note="")
        seen: dict[str, int] = {}

        def on_result(result: RolloutResult) -> None:
            seen[result.ending] = seen.get(result.ending, 0) + 1
            note = ", ".join(f"{count} {ending.replace('_', ' ')}" for ending, count in seen.items())
            progress.update(bar, advance=1, note=note)

        return run(
            Plan(
                gateway_url=stack.gateway_url,
                run_id=plan.run_id,
                tasks=plan.tasks,
                rollouts=plan.rollouts,
                concurrency=plan.concurrency,
                seed=plan.seed,
            ),
            on_result=on_result,
        )


def _await_groups(plan: DemoPlan, clickhouse: Client, console: Console) -> None:
    """Until every group is decided and every full batch is stored; verification says what is missing."""
    before, moved_at = None, time.monotonic()
    with _progress(console) as progress:
        bar = progress.add_task("Groups", total=plan.tasks, note="")
        while time.monotonic() - moved_at < _STALL_S:
            now = evidence.progress_in_clickhouse(clickhouse, plan.run_id)
            note = f"{now.trajectories} trajectories sealed, {now.batched_groups} groups in batches"
            progress.update(bar, completed=now.groups, note=note)
            if now.complete(
                trajectories=plan.tasks * plan.rollouts, groups=plan.tasks, batch_groups=plan.batch_groups
            ):
                return
            if now != before:
                before, moved_at = now, time.monotonic()
            time.sleep(_POLL_S)


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description:9}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
    )


def _verify(
    plan: DemoPlan, stack: LocalStack, clickhouse: Client, engine: EngineProcess, summary: RunSummary
) -> tuple[Verdict, list[GroupDecision]]:
    decisions = evidence.decisions_in_log(stack.kafka, plan.run_id)
    return verify(
        Evidence(
            answered_ids=summary.answered_ids,
            captured=evidence.steps_in_log(stack.kafka, plan.run_id),
            stored=evidence.steps_in_clickhouse(clickhouse, plan.run_id),
            decisions={
                group_id: (str(event.__struct_config__.tag), event.reason)
                for group_id, event in decisions.items()
            },
            groups_total=plan.tasks,
            journal=evidence.journal_of(engine.journal),
        )
    ), list(decisions.values())


def _first_batch(
    plan: DemoPlan, stack: LocalStack, clickhouse: Client
) -> tuple[ResolvedBatch | None, list[str]]:
    places = KafkaPlaceReader(stack.kafka, TRAJECTORIES, client_id="agentworld-demo")
    with closing(places):
        reader = BatchReader(places, lambda: scan_topic(stack.kafka, READY_BATCHES), BatchArchive(clickhouse))
        batches = reader.list(run_id=plan.run_id)
        if not batches:
            return None, ["no batch was released"]
        try:
            return reader.resolve(batches[0]), []
        except IntegrityError as exc:
            return None, [str(exc)]


def _show(
    plan: DemoPlan,
    console: Console,
    stack: LocalStack,
    clickhouse: Client,
    decisions: list[GroupDecision],
    batch: ResolvedBatch | None,
) -> None:
    console.print()
    print_groups(decisions, console)
    console.print()
    if batch is not None:
        print_batch(batch, console)
    print_answers(clickhouse, plan.run_id, console)


def _print_places(console: Console, stack: LocalStack, engine: EngineProcess, plan: DemoPlan) -> None:
    console.print()
    rows = [
        *(("gateway (routes: /docs)", url) for url in stack.gateway_urls),
        ("demo engine", engine.url),
        ("ClickHouse, database " + stack.clickhouse.database, stack.clickhouse.url),
        ("Kafka, topics " + stack.kafka.topic_prefix + "*", stack.kafka.bootstrap),
        ("engine's journal", engine.journal),
        ("logs", plan.data_dir / "logs"),
    ]
    print_table("Where things are", ("what", "where"), rows, console=console)


def _conclude(console: Console, figures: dict[str, Any], verdict: Verdict, path: Path) -> None:
    console.print()
    rows = [(name.replace("_", " "), value) for name, value in figures.items()]
    print_table("Does it add up?", ("figure", "value"), rows, console=console)
    for problem in verdict.problems:
        console.print(f"[bold red]✗[/] {problem}", highlight=False)
    if not verdict.problems:
        console.print("[bold green]✓[/] answered = captured = stored, every token as it was sampled.")
    console.print(f"Report: {path}")


def _until_interrupted() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        return
