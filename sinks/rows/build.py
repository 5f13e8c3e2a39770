"""The message processor: a record of any topic the sink reads → its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentworld.contract.codec import decode
from agentworld.contract.topics import (
    GROUPS,
    POLICY_VERSIONS,
    READY_BATCHES,
    TRAINING_EVENTS,
    TRAJECTORIES,
    TRAJECTORY_EVENTS,
    TopicSpec,
)
from agentworld.platform.log import Record
from sinks.rows import batches, captures, groups, training, trajectories
from sinks.rows.row import Row

SOURCES: tuple[TopicSpec, ...] = (
    TRAJECTORY_EVENTS,
    TRAJECTORIES,
    GROUPS,
    READY_BATCHES,
    POLICY_VERSIONS,
    TRAINING_EVENTS,
)
"""What the sink reads."""

_SPECS = {spec.name: spec for spec in SOURCES}
_BUILDERS: Mapping[str, Callable[[Record, Any], list[Row]]] = {
    TRAJECTORY_EVENTS.name: captures.rows_of,
    TRAJECTORIES.name: trajectories.rows_of,
    GROUPS.name: groups.rows_of,
    READY_BATCHES.name: batches.rows_of,
    POLICY_VERSIONS.name: training.policy_rows_of,
    TRAINING_EVENTS.name: training.training_rows_of,
}


def build_rows(record: Record) -> list[Row]:
    """The rows of one record; none for a tombstone and for events that have no table.

    Equal records give equal rows. Raises `MalformedEvent`.
    """
    spec = _SPECS[record.topic]
    if record.value is None and "compact" in spec.cleanup:
        return []
    return _BUILDERS[record.topic](record, decode(spec, record.value))
