"""What arrived: the events of the log, and the rows of ClickHouse."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field

from agentworld.contract.codec import decode
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import BatchReady, Event, GroupDecision, GroupRevised, TrajectorySealed
from agentworld.contract.topics import GROUPS, READY_BATCHES, TRAJECTORIES, TopicSpec
from agentworld.platform.clickhouse import connect
from agentworld.platform.scan import scan_topic
from infra.local.stack import LocalStack


@dataclass(frozen=True)
class StepRow:
    """A row of `steps`, FINAL."""

    step_id: str
    trajectory_id: str
    group_id: str
    step_index: int


@dataclass
class Arrived:
    """Each list in the order of the log."""

    seals: list[TrajectorySealed] = field(default_factory=list)
    decisions: list[GroupDecision] = field(default_factory=list)
    batches: list[BatchReady] = field(default_factory=list)
    rows: list[StepRow] = field(default_factory=list)
    group_rows: list[tuple[str, str]] = field(default_factory=list)
    """Group id and run id of each row of `groups`, FINAL."""
    trajectory_rows: list[tuple[str, str]] = field(default_factory=list)
    """Trajectory id and group id of each row of `trajectories`, FINAL."""
    batch_rows: set[str] = field(default_factory=set)
    """Batch ids that have a row."""


def arrived_in(stack: LocalStack) -> Arrived:
    """Read it all. Raises `Unavailable`."""
    found = Arrived()
    for event in _events(stack, TRAJECTORIES):
        if isinstance(event, TrajectorySealed):
            found.seals.append(event)
    for event in _events(stack, GROUPS):
        if isinstance(event, GroupDecision) and not isinstance(event, GroupRevised):
            found.decisions.append(event)
    found.batches = [event for event in _events(stack, READY_BATCHES) if isinstance(event, BatchReady)]
    with closing(connect(stack.clickhouse)) as client:
        rows = client.query("SELECT step_id, trajectory_id, group_id, step_index FROM steps FINAL")
        found.rows = [StepRow(*row) for row in rows.result_rows]
        groups = client.query("SELECT group_id, run_id FROM groups FINAL")
        found.group_rows = [(str(group), str(run)) for group, run in groups.result_rows]
        trajectories = client.query("SELECT trajectory_id, group_id FROM trajectories FINAL")
        found.trajectory_rows = [(str(name), str(group)) for name, group in trajectories.result_rows]
        found.batch_rows = {str(row[0]) for row in client.query("SELECT batch_id FROM batches").result_rows}
    return found


def _events(stack: LocalStack, spec: TopicSpec) -> Iterable[Event]:
    for record in scan_topic(stack.kafka, spec):
        try:
            yield decode(spec, record.value)
        except MalformedEvent:
            continue  # poison: it is looked for among the dead letters
