"""A replay from `trajectory-events`: steps are assembled again, under the new run's rules."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from agentworld.contract.codec import decode, encode
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import (
    ClockTicked,
    Event,
    Place,
    PolicyPublished,
    RewardAssigned,
    StepCaptured,
    TrajectoryCompleted,
    TrajectoryRegistered,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Record
from stream_processors.clock import MAX_CLOCK_STEP_MS, clock_ticked
from stream_processors.replay.renamed import Renaming
from stream_processors.replay.run import ReplayRun
from stream_processors.replay.selection import Selection
from stream_processors.rules import RuleSource
from stream_processors.trajectories.processor import TrajectoryProcessor

PlaceOf = Callable[[OutRecord, TrajectorySealed], Awaitable[Place]]
"""Where a seal of the new run stands: written there now, or before."""


class Reassembly:
    """Reads `trajectory-events` twice: first for registrations, which say what belongs to the run."""

    def __init__(
        self,
        selection: Selection,
        renaming: Renaming,
        rules: RuleSource,
        run: ReplayRun,
        *,
        versions: Sequence[PolicyPublished],
        verdicts: bool,
    ) -> None:
        """`versions`: every version that was published, for rules that measure policy lag."""
        self._selection = selection
        self._renaming = renaming
        self._rules = rules
        self._run = run
        self._versions = sorted(versions, key=lambda event: (event.event_time_ms, event.event_id))
        self._told: dict[int, int] = defaultdict(int)
        self._last: dict[int, Record] = {}
        self._latest_ms: dict[int, int] = defaultdict(int)
        self._verdicts = verdicts
        self._trajectories: set[str] = set()
        self._processors: dict[int, TrajectoryProcessor] = {}
        self.malformed = 0

    def note(self, records: Iterable[Record]) -> None:
        """First reading: find the trajectories that are asked for."""
        for record in records:
            event = self._decoded(record)
            if isinstance(event, TrajectoryRegistered) and self._selection.has_trajectory(
                event.run_id, event.channel, event.group_id, event.trajectory_id
            ):
                self._renaming.registered(event)
                self._trajectories.add(event.trajectory_id)
        self.malformed = 0

    async def assemble(self, records: Iterable[Record], place_of: PlaceOf) -> None:
        """Second reading: assemble them and feed what is sealed to the run."""
        for record in records:
            event = self._decoded(record)
            if event is None or not self._selection.has_time(event.event_time_ms):
                continue
            renamed = self._renamed(event)
            if renamed is None:
                continue
            processor = self._processors.get(record.partition)
            if processor is None:
                processor = self._processors[record.partition] = TrajectoryProcessor(
                    record.partition, self._rules
                )
            self._tell_versions(record, event.event_time_ms)
            effects = processor.process(dataclasses.replace(record, value=encode(renamed)))
            for output in effects.outputs:
                if output.topic == TRAJECTORIES.name:
                    await self._feed(record, output, place_of)
            self._last[record.partition] = dataclasses.replace(record, value=None)
            self._latest_ms[record.partition] = max(self._latest_ms[record.partition], event.event_time_ms)
            if isinstance(event, ClockTicked):
                self._run.take(record, event)
        await self._let_grace_pass(place_of)

    async def _let_grace_pass(self, place_of: PlaceOf) -> None:
        """The log ends, and with it time: seal what is complete. What is not stays open."""
        rules = self._rules.of(self._renaming.into, self._selection.channel or "train")
        for partition, processor in sorted(self._processors.items()):
            last, now_ms = self._last[partition], self._latest_ms[partition]
            for elapsed_ms in range(0, rules.seal.grace_ms + 2 * MAX_CLOCK_STEP_MS, MAX_CLOCK_STEP_MS):
                event = clock_ticked(TRAJECTORY_EVENTS, partition, now_ms + elapsed_ms)
                tick = dataclasses.replace(last, value=encode(event))
                for output in processor.process(tick).outputs:
                    if output.topic == TRAJECTORIES.name:
                        await self._feed(tick, output, place_of)
                self._run.take(tick, event)

    async def _feed(self, record: Record, output: OutRecord, place_of: PlaceOf) -> None:
        event = decode(TRAJECTORIES, output.value)
        offset = record.offset
        if isinstance(event, TrajectorySealed):
            offset = (await place_of(output, event)).offset
        self._run.take(dataclasses.replace(record, topic=TRAJECTORIES.name, offset=offset), event)

    def _tell_versions(self, record: Record, event_time_ms: int) -> None:
        """Policy versions have no place in this topic: each partition learns of them by event time."""
        partition = record.partition
        while (
            self._told[partition] < len(self._versions)
            and self._versions[self._told[partition]].event_time_ms <= event_time_ms
        ):
            self._run.take(record, self._versions[self._told[partition]])
            self._told[partition] += 1

    def _renamed(self, event: Event) -> Event | None:
        match event:
            case TrajectoryRegistered() if event.trajectory_id in self._trajectories:
                return self._renaming.registered(event)
            case StepCaptured() | RewardAssigned() | TrajectoryCompleted():
                if event.trajectory_id in self._trajectories:
                    return self._renaming.of_trajectory(event)
            case VerdictGiven() if self._verdicts and self._renaming.knows(event.group_id):
                return self._renaming.verdict(event, assembled=True)
            case ClockTicked():
                return event
        return None

    def _decoded(self, record: Record) -> Event | None:
        if not self._selection.has_place(record.partition, record.offset):
            return None
        try:
            event: Event = decode(TRAJECTORY_EVENTS, record.value)
        except MalformedEvent:
            self.malformed += 1
            return None
        return event
