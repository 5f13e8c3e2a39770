"""The new run on the log: what a replay has written there, and what is still to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from agentworld.contract.codec import decode, encode
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import BatchReady, Event, Place, TrajectorySealed
from agentworld.contract.topics import GROUPS, READY_BATCHES, TRAJECTORIES, TopicSpec
from agentworld.platform.log import REPLAY_OF, OutRecord, Publisher, Record
from stream_processors.replay.run import Replayed

NOWHERE = -1
"""Offset of a seal that a dry run did not write."""

Scan = Callable[[TopicSpec], Iterable[Record]]
"""Everything that a topic holds now."""


@dataclass
class Written:
    """How many records a replay added, and how many it found there from an earlier time."""

    new: int = 0
    known: int = 0


@dataclass
class Target:
    """Writes a replay once, however often it runs. Records carry the header `replay-of`."""

    run_id: str
    replay_of: str
    scan: Scan
    publisher: Publisher | None
    """None: a dry run, which writes nothing."""
    written: Written = field(default_factory=Written)
    _seals: dict[str, Place] | None = None

    async def place_of(self, output: OutRecord, event: TrajectorySealed) -> Place:
        """Where a seal of the new run stands; it is written if it is not there yet."""
        if self._seals is None:
            self._seals = {
                dict(record.headers)["event_id"].decode(): record.place
                for record in self.scan(TRAJECTORIES)
                if self._is_ours(record) and dict(record.headers).get("type") == b"trajectory_sealed"
            }
        place = self._seals.get(event.event_id)
        if place is None:
            place = await self._write(TRAJECTORIES, event)
            self._seals[event.event_id] = place
        else:
            self.written.known += 1
        return place

    def check(self) -> dict[str, bytes]:
        """The new run's batches by id. Raises `InvalidInput` 409 where one is no replay of the old run."""
        batches: dict[str, bytes] = {}
        for record in self.scan(READY_BATCHES):
            if dict(record.headers).get("batch_id") is None or record.value is None:
                continue
            batch = decode(READY_BATCHES, record.value)
            if batch.run_id != self.run_id:
                continue
            if batch.replay_of != self.replay_of:
                raise InvalidInput(
                    f"run {self.run_id} has batches of its own: name another run with --into",
                    code="run_in_use",
                    status=409,
                )
            batches[batch.batch_id] = record.value
        return batches

    async def write(self, replayed: Replayed, known: Mapping[str, bytes]) -> None:
        """Write decisions and batches, but for the batches `known` (see `check`).

        Raises `InvalidInput` 409 where the run has batches of a replay under other rules or other data.
        """
        planned = {batch.batch_id: encode(batch) for batch in replayed.batches}
        if other := [name for name, value in known.items() if planned.get(name) != value]:
            raise InvalidInput(
                f"run {self.run_id} holds {len(other)} batches of a replay with other rules or data: "
                "name another run with --into",
                code="run_in_use",
                status=409,
            )
        events = {dict(record.headers)["event_id"] for record in self.scan(GROUPS) if self._is_ours(record)}
        for event in replayed.events:
            if event.event_id.encode() in events:
                self.written.known += 1
            else:
                await self._write(GROUPS, event)
        for batch in replayed.batches:
            if batch.batch_id in known:
                self.written.known += 1
            else:
                await self._write(READY_BATCHES, batch)

    async def _write(self, spec: TopicSpec, event: Event | BatchReady) -> Place:
        if self.publisher is None:
            return Place(topic=spec.name, partition=NOWHERE, offset=NOWHERE)
        plain = OutRecord.of(spec, event)
        record = OutRecord(
            topic=plain.topic,
            key=plain.key,
            value=plain.value,
            headers=(*plain.headers, (REPLAY_OF, self.replay_of.encode())),
        )
        place = await self.publisher.publish(record)
        assert place is not None
        self.written.new += 1
        return place

    def _is_ours(self, record: Record) -> bool:
        return dict(record.headers).get(REPLAY_OF) == self.replay_of.encode()
