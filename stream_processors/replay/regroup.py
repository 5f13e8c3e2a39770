"""A replay from `trajectories`: sealed trajectories are grouped, curated and batched again."""

from __future__ import annotations

from collections.abc import Iterable

from agentworld.contract.codec import decode
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import (
    ClockTicked,
    PolicyPublished,
    TrajectoryRevised,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.log import Record
from stream_processors.replay.renamed import Renaming
from stream_processors.replay.run import EarlyVerdicts, ReplayRun
from stream_processors.replay.selection import Selection


def regroup(
    records: Iterable[Record], selection: Selection, renaming: Renaming, run: ReplayRun, *, verdicts: bool
) -> int:
    """Feed `run` with what `selection` takes of `trajectories`; returns how many records were malformed.

    Members keep the places of the original seals. `verdicts`: those of the original run count again.
    """
    early, malformed = EarlyVerdicts(), 0
    for record in records:
        if not selection.has_place(record.partition, record.offset):
            continue
        try:
            event = decode(TRAJECTORIES, record.value)
        except MalformedEvent:
            malformed += 1
            continue
        if not selection.has_time(event.event_time_ms):
            continue
        match event:
            case TrajectorySealed() if _selected(selection, event):
                first = renaming.sealed(event)
                for place, verdict in early.take(event.group_id):
                    _give(run, renaming, place, verdict)
                run.take(record, first)
            case TrajectoryRevised() if _selected(selection, event) and renaming.knows(event.group_id):
                run.take(record, renaming.revised(event))
            case VerdictGiven() if verdicts:
                if renaming.knows(event.group_id):
                    _give(run, renaming, record, event)
                else:
                    early.keep(record, event)
            case ClockTicked() | PolicyPublished():
                run.take(record, event)
    return malformed


def _give(run: ReplayRun, renaming: Renaming, record: Record, event: VerdictGiven) -> None:
    run.take(record, renaming.verdict(event))


def _selected(selection: Selection, event: TrajectorySealed | TrajectoryRevised) -> bool:
    return selection.has_trajectory(event.run_id, event.channel, event.group_id, event.trajectory_id)
