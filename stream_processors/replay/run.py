"""The processors over records of the log, without a broker in between. Equal input gives equal bytes."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from agentworld.contract.codec import decode, encode
from agentworld.contract.events import (
    BatchReady,
    ClockTicked,
    Event,
    GroupDecision,
    PolicyPublished,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.topics import GROUPS, READY_BATCHES
from agentworld.platform.log import OutRecord, Record
from stream_processors.batches.processor import BatchProcessor
from stream_processors.groups.processor import GroupProcessor
from stream_processors.rules import RuleSource

_When = tuple[int, int, int]
"""Event time, partition, number there: the order in which decisions of all partitions are batched."""


@dataclass
class Replayed:
    """What the rules made of the records."""

    events: list[Event] = field(default_factory=list)
    """What stands on `groups` for the new run: decisions, wanted rollouts, conflicts."""
    batches: list[BatchReady] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Groups that are ready and fill no batch."""
    trajectories: int = 0

    @property
    def decisions(self) -> list[GroupDecision]:
        """Decisions on groups, in order."""
        return [event for event in self.events if isinstance(event, GroupDecision)]


class ReplayRun:
    """Decides the groups of each partition, then batches all of them in the order of event time.

    Partitions may be fed in any interleaving: each has its own processor, and what they decide is
    ordered afterwards.
    """

    def __init__(self, replay_of: str, rules: RuleSource) -> None:
        self._replay_of = replay_of
        self._rules = rules
        self._groups: dict[int, GroupProcessor] = {}
        self._latest_ms: dict[int, int] = defaultdict(int)
        self._timeline: list[tuple[_When, Event]] = []
        self.trajectories = 0

    def take(self, record: Record, event: Event) -> None:
        """What the new run's group processor reads next in `record.partition`: `event`, at its place."""
        partition = record.partition
        processor = self._groups.get(partition)
        if processor is None:
            processor = self._groups[partition] = GroupProcessor(partition, self._rules)
        latest_ms = self._latest_ms[partition] = max(self._latest_ms[partition], event.event_time_ms)
        self.trajectories += isinstance(event, TrajectorySealed)
        if isinstance(event, ClockTicked | PolicyPublished):
            self._note(latest_ms, partition, event)
        for output in processor.process(dataclasses.replace(record, value=encode(event))).outputs:
            if output.topic == GROUPS.name:
                self._note(latest_ms, partition, decode(GROUPS, output.value))

    def batch(self, *, flush: bool) -> Replayed:
        """Release batches. `flush`: at the end also short ones of what still waits."""
        result = Replayed(trajectories=self.trajectories)
        processor = BatchProcessor(0, self._rules)
        for number, (_, event) in enumerate(sorted(self._timeline, key=lambda entry: entry[0])):
            if not isinstance(event, ClockTicked | PolicyPublished):
                result.events.append(event)
            result.batches += self._batches(processor.process(_record_of(event, number)).outputs)
        if flush:
            result.batches += self._batches(processor.flush(max(self._latest_ms.values(), default=0)).outputs)
        result.waiting = processor.waiting()
        return result

    def _note(self, latest_ms: int, partition: int, event: Event) -> None:
        self._timeline.append(((latest_ms, partition, len(self._timeline)), event))

    def _batches(self, outputs: Sequence[OutRecord]) -> list[BatchReady]:
        return [
            msgspec.structs.replace(decode(READY_BATCHES, output.value), replay_of=self._replay_of)
            for output in outputs
            if output.topic == READY_BATCHES.name
        ]


class EarlyVerdicts:
    """Verdicts that stand in the log before the first seal of their group, until it comes."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[Record, VerdictGiven]]] = defaultdict(list)

    def keep(self, record: Record, event: VerdictGiven) -> None:
        """Remember it under the group it names."""
        self._waiting[event.group_id].append((record, event))

    def take(self, group_id: str) -> list[tuple[Record, VerdictGiven]]:
        """Those on a group that is known now."""
        return self._waiting.pop(group_id, [])


def _record_of(event: Event, number: int) -> Record:
    return Record(
        topic=GROUPS.name,
        partition=0,
        offset=number,
        key=None,
        value=encode(event),
        headers=(),
        timestamp_ms=event.event_time_ms,
    )
