"""Topics as data: who is keyed by what, kept how long, and which events may stand there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from agentworld.contract.events import (
    BatchReady,
    DirectoryUpdated,
    Event,
    GroupEvent,
    PolicyPublished,
    TrainingEvent,
    TrajectoriesEvent,
    TrajectoryEvent,
)

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic. `name` stands without the deployment's prefix."""

    name: str
    key: Callable[[Any], str]
    events: Any
    """Union of the event types allowed here."""
    retention: timedelta
    cleanup: Literal["delete", "compact", "compact,delete"] = "delete"
    max_message_bytes: int = 16 * MiB
    partitions: int = 24
    """Default count; all keyed topics share one count so that they stay co-partitioned."""
    dead_letters: bool = True
    """Whether consumers have a `<name>-dlq` for records of this topic they cannot use."""

    @property
    def event_types(self) -> tuple[type[Event], ...]:
        """The event classes of this topic."""
        return get_args(self.events) or (self.events,)

    @property
    def dlq_name(self) -> str:
        """Name of the dead-letter topic, without prefix."""
        return f"{self.name}-dlq"


def _by_prompt(event: Any) -> str:
    return str(event.prompt_id)


def run_channel_key(run_id: str, channel: str) -> str:
    """Key of a run's channel: its events stay in order in one partition."""
    return f"{run_id}/{channel}"


def _by_run_channel(event: Any) -> str:
    return run_channel_key(event.run_id, event.channel)


WEEK = timedelta(days=7)

TRAJECTORY_EVENTS = TopicSpec(
    name="trajectory-events", key=_by_prompt, events=TrajectoryEvent, retention=WEEK
)
TRAJECTORIES = TopicSpec(
    name="trajectories",
    key=_by_prompt,
    events=TrajectoriesEvent,
    retention=WEEK,
    max_message_bytes=64 * MiB,
)
GROUPS = TopicSpec(name="groups", key=_by_run_channel, events=GroupEvent, retention=WEEK)
READY_BATCHES = TopicSpec(name="ready-batches", key=_by_run_channel, events=BatchReady, retention=WEEK)
POLICY_VERSIONS = TopicSpec(
    name="policy-versions",
    key=lambda e: str(e.policy),
    events=PolicyPublished,
    retention=WEEK,
    cleanup="compact",
    max_message_bytes=MiB,
)
TRAINING_EVENTS = TopicSpec(
    name="training-events", key=lambda e: str(e.batch_id), events=TrainingEvent, retention=WEEK
)
TRAJECTORY_DIRECTORY = TopicSpec(
    name="trajectory-directory",
    key=lambda e: str(e.trajectory_id),
    events=DirectoryUpdated,
    retention=WEEK,
    cleanup="compact,delete",
    max_message_bytes=MiB,
    dead_letters=False,
)

ALL_TOPICS: tuple[TopicSpec, ...] = (
    TRAJECTORY_EVENTS,
    TRAJECTORIES,
    GROUPS,
    READY_BATCHES,
    POLICY_VERSIONS,
    TRAINING_EVENTS,
    TRAJECTORY_DIRECTORY,
)
TOPICS_BY_NAME = {spec.name: spec for spec in ALL_TOPICS}
