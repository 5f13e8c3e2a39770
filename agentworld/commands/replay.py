"""`agentworld replay`: what stands in the log, decided again under other rules, as another run.

Exit codes: 0 done; 1 the broker or ClickHouse is away; 2 what was asked for is not there or not possible.
"""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from agentworld.commands.moments import unix_ms
from agentworld.commands.plain_errors import plain_errors
from agentworld.commands.servers import DataDir, use_servers
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import BatchReady
from agentworld.platform.clickhouse import connect
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reports import print_table, write_report
from agentworld.platform.scan import scan_topic
from agentworld.platform.selected_ids import selected_ids
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from stream_processors.replay.job import Job, Outcome, ReplayRules
from stream_processors.replay.job import replay as run_replay
from stream_processors.replay.selection import Selection, parse_offsets
from stream_processors.settings import ProcessorSettings, rules_of


@plain_errors(invalid_input=2, interrupted=1)
def replay(
    run: Annotated[str, typer.Option("--run", help="The run to replay.")],
    into: Annotated[str, typer.Option("--into", help="The new run's name.")],
    channel: Annotated[str | None, typer.Option("--channel", help="Only this channel.")] = None,
    assemble: Annotated[
        bool, typer.Option("--assemble", help="From trajectory-events: order and seal steps again, too.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="From this event time on: 2h, 3d, or an ISO time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Before this event time: 2h, 3d, or an ISO time.")
    ] = None,
    offsets: Annotated[
        str, typer.Option("--offsets", help="Only these records: PARTITION:FIRST-END,… e.g. 0:100-200,1:50-")
    ] = "",
    sql: Annotated[
        str | None,
        typer.Option("--sql", help="Only what this query finds: a SELECT of trajectory_id or group_id."),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="Rules file of the new run (docs/rules.md).")
    ] = None,
    reward: Annotated[
        str | None, typer.Option("--reward", help="Named rewards that train, by precedence: human,judge")
    ] = None,
    rollouts: Annotated[
        int | None, typer.Option("--rollouts", min=1, help="n, whatever was registered.")
    ] = None,
    batch_groups: Annotated[
        int | None, typer.Option("--batch-groups", min=1, help="Groups in a batch.")
    ] = None,
    verdicts: Annotated[
        bool, typer.Option("--verdicts/--no-verdicts", help="Whether verdicts on the old groups count again.")
    ] = True,
    flush: Annotated[bool, typer.Option("--flush", help="Release a last, short batch.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be batched.")] = False,
    data_dir: DataDir = Path(".agentworld"),
) -> None:
    """Replay a run into a new one. Equal data and rules give byte-identical batches."""
    use_servers(data_dir)
    kafka = KafkaSettings()
    now = datetime.datetime.now(datetime.UTC)
    ids = selected_ids(connect(ClickHouseSettings()), sql) if sql else {}
    selection = Selection(
        run_id=run,
        channel=channel,
        since_ms=unix_ms(since, now=now) if since else None,
        until_ms=unix_ms(until, now=now, option="--until") if until else None,
        offsets=parse_offsets(offsets),
        **ids,
    )
    settings = ProcessorSettings()
    settings = settings.model_copy(update={"rules_file": rules}) if rules else settings
    sections = _sections(reward, rollouts, batch_groups)
    job = Job(selection=selection, into=into, assemble=assemble, verdicts=verdicts, flush=flush)
    outcome = asyncio.run(_run(job, ReplayRules(rules_of(settings, kafka), **sections), kafka, dry_run))
    _print(job, outcome, dry_run=dry_run)


async def _run(job: Job, rules: ReplayRules, kafka: KafkaSettings, dry_run: bool) -> Outcome:
    publisher = None if dry_run else KafkaPublisher(kafka, client_id="replay")
    try:
        return await run_replay(job, rules, partial(scan_topic, kafka), publisher)
    finally:
        if publisher is not None:
            await publisher.close()


def _sections(reward: str | None, rollouts: int | None, batch_groups: int | None) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    if reward is not None:
        names = tuple(name.strip() for name in reward.split(",") if name.strip())
        if not names:
            raise InvalidInput("--reward names no reward: write --reward human,judge", code="no_reward")
        sections["reward"] = {"names": names}
    if rollouts is not None:
        sections["group"] = {"rollouts": rollouts}
    if batch_groups is not None:
        sections["batch"] = {"groups": batch_groups}
    return sections


def _print(job: Job, outcome: Outcome, *, dry_run: bool) -> None:
    replayed, console = outcome.replayed, Console()
    console = console if console.is_terminal else Console(width=160)
    newest = {decision.group_id: decision for decision in replayed.decisions}
    decided = Counter(str(decision.__struct_config__.tag) for decision in replayed.decisions)
    print_table(
        f"Run {job.selection.run_id} as {job.into}: {replayed.trajectories} trajectories, "
        f"{len(newest)} groups, {len(replayed.batches)} batches",
        ("seq", "batch", "groups", "trajectories", "steps", "mean reward", "reason"),
        [_batch_row(batch) for batch in replayed.batches],
        console=console,
    )
    reasons = Counter(
        (str(decision.__struct_config__.tag), decision.decided_by) for decision in replayed.decisions
    )
    print_table(
        "Decisions",
        ("decision", "by", "count"),
        [(kind, by, count) for (kind, by), count in sorted(reasons.items())],
        console=console,
    )
    typer.echo(f"batches digest {outcome.digest}")
    if replayed.waiting:
        typer.echo(f"{len(replayed.waiting)} groups fill no batch (--flush releases them in a short one)")
    if outcome.malformed:
        typer.echo(f"{outcome.malformed} records could not be read: agentworld dlq list")
    did = "nothing written (dry run)"
    if not dry_run:
        did = f"{outcome.written.new} records written, {outcome.written.known} were there"
    typer.echo(did)
    write_report(
        "replay",
        {
            "run": job.selection.run_id,
            "into": job.into,
            "dry_run": dry_run,
            "trajectories": replayed.trajectories,
            "groups": len(newest),
            "batches": [batch.batch_id for batch in replayed.batches],
            "decisions": dict(decided),
            "waiting": len(replayed.waiting),
            "malformed": outcome.malformed,
            "written": outcome.written.new,
            "digest": outcome.digest,
        },
    )


def _batch_row(batch: BatchReady) -> tuple[Any, ...]:
    rewards = [m.reward for group in batch.groups for m in group.members if m.reward is not None]
    mean = round(sum(rewards) / len(rewards), 4) if rewards else None
    return (
        batch.sequence,
        batch.batch_id,
        len(batch.groups),
        batch.trajectories,
        batch.steps,
        mean,
        batch.reason,
    )
