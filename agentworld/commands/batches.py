"""`agentworld batches`: which batches were released to training, and what exactly is in one."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from agentworld.commands.batch_source import batch_reader
from agentworld.commands.plain_errors import plain_errors
from agentworld.contract.events import BatchReady
from agentworld.contract.topics import READY_BATCHES
from agentworld.platform.batches import tail as tail_batches
from agentworld.platform.reader import KafkaReader
from agentworld.platform.reports import print_table
from agentworld.platform.resolved import ResolvedBatch, ResolvedStep, ResolvedTrajectory
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings

app = typer.Typer(no_args_is_help=True, help=__doc__)

_SHOWN_TOKENS = 12

Run = Annotated[str | None, typer.Option("--run", help="Only this run.")]
Channel = Annotated[str | None, typer.Option("--channel", help="Only this channel (train, val, …).")]


@app.command("tail")
@plain_errors()
def tail(
    run: Run = None,
    channel: Channel = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with batches as they come; Ctrl-C ends it.")
    ] = False,
) -> None:
    """List the batches there are, oldest first."""
    kafka = KafkaSettings()
    if follow:
        _follow(kafka, run, channel)
        return
    with batch_reader(kafka) as reader:
        batches = reader.list(run_id=run, channel=channel)
    if not batches:
        typer.echo("no batch yet: one is released when enough groups of a run and channel are ready")
        return
    print_table(
        f"{len(batches)} batches",
        ("batch", "run", "channel", "seq", "groups", "trajectories", "steps", "tokens", "policy", "released"),
        [_listed(batch) for batch in batches],
        console=_console(),
    )


def _follow(kafka: KafkaSettings, run: str | None, channel: str | None) -> None:
    # Fails at once, with a reason, where there is no broker to follow.
    next(iter(scan_topic(kafka, READY_BATCHES)), None)
    group = f"{kafka.topic_prefix}batches-tail-{uuid.uuid4().hex}"
    reader = KafkaReader(kafka, [READY_BATCHES], group=group, client_id="batches-tail")
    try:
        for batch in tail_batches(reader, run_id=run, channel=channel):
            typer.echo("  ".join(map(str, _listed(batch))))
    finally:
        reader.close()


@app.command("show")
@plain_errors()
def show(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="A batch id, from `batches tail`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Also each step's ids and logprobs.")] = False,
) -> None:
    """Resolve a batch to its trajectories, token by token, and print it."""
    with batch_reader(KafkaSettings()) as reader:
        resolved = reader.resolve(reader.find(batch_id))
    if as_json:
        typer.echo(json.dumps(_as_json(resolved)))
        return
    _print_batch(resolved, tokens=tokens)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _listed(batch: BatchReady) -> tuple[Any, ...]:
    return (
        batch.batch_id,
        batch.run_id,
        batch.channel,
        batch.sequence,
        len(batch.groups),
        batch.trajectories,
        batch.steps,
        batch.response_tokens,
        _span(batch.policy_version_min, batch.policy_version_max),
        _time(batch.event_time_ms),
    )


def _print_batch(resolved: ResolvedBatch, *, tokens: bool) -> None:
    console, event = _console(), resolved.event
    print_table(
        f"batch {event.batch_id}: run {event.run_id}, channel {event.channel}, sequence {event.sequence}, "
        f"{event.reason}, released {_time(event.event_time_ms)}",
        (
            "prompt",
            "round",
            "trajectory",
            "outcome",
            "reward",
            "steps",
            "trained",
            "branches",
            "prompt",
            "response",
            "policy",
            "from",
        ),
        [_trajectory_line(trajectory) for trajectory in resolved.trajectories],
        console=console,
    )
    if not tokens:
        return
    for trajectory in resolved.trajectories:
        print_table(
            _tree_title(trajectory),
            (
                "step",
                "parent",
                "trained",
                "status",
                "relation",
                "prompt ids",
                "response ids",
                "logprobs",
                "request",
                "integrity",
            ),
            _step_lines(trajectory.steps),
            console=console,
        )


def _trajectory_line(trajectory: ResolvedTrajectory) -> tuple[Any, ...]:
    versions = [
        version
        for step in trajectory.steps
        for version in (step.policy_version_start, step.policy_version_end)
        if version is not None
    ]
    return (
        trajectory.prompt_id,
        trajectory.round,
        trajectory.trajectory_id,
        trajectory.outcome,
        trajectory.reward,
        len(trajectory.steps),
        sum(step.trained for step in trajectory.steps),
        len(trajectory.branches),
        sum(len(step.prompt_ids) for step in trajectory.steps),
        sum(len(step.response_ids) for step in trajectory.steps),
        _span(min(versions, default=None), max(versions, default=None)),
        trajectory.read_from,
    )


def _tree_title(trajectory: ResolvedTrajectory) -> str:
    branch = trajectory.trained_branch
    why = f"{branch.rule}: {branch.reason}" if branch else "no branch trains"
    return f"trajectory {trajectory.trajectory_id}, {why}"


def _step_lines(steps: Sequence[ResolvedStep]) -> list[tuple[Any, ...]]:
    places = {step.step_id: step.step_index for step in steps}
    return [_step_line(step, places) for step in steps]


def _step_line(step: ResolvedStep, places: Mapping[str, int]) -> tuple[Any, ...]:
    parent = step.parent_step_id
    return (
        step.step_index,
        None if parent is None else places.get(parent, parent),
        "yes" if step.trained else "superseded" if step.superseded else "no",
        step.status,
        step.relation,
        _some(step.prompt_ids),
        _some(step.response_ids),
        _some([round(logprob, 3) for logprob in step.logprobs]),
        step.engine_request_id,
        ", ".join(step.integrity) or "clean",
    )


def _some(values: list[Any]) -> str:
    shown = " ".join(map(str, values[:_SHOWN_TOKENS]))
    more = len(values) - _SHOWN_TOKENS
    return f"{shown} … +{more}" if more > 0 else shown


def _span(low: int | None, high: int | None) -> str:
    return "–" if low is None else str(low) if low == high else f"{low}–{high}"


def _time(unix_ms: int) -> str:
    return datetime.datetime.fromtimestamp(unix_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _as_json(resolved: ResolvedBatch) -> dict[str, Any]:
    return {
        "batch": msgspec.to_builtins(resolved.event),
        "groups": [msgspec.to_builtins(group) for group in resolved.groups],
    }
