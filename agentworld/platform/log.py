"""The log as services see it: records, a publisher, a reader. Kafka behind it, or the fake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentworld.contract.codec import encode, record_headers, record_key
from agentworld.contract.events import Event, Place
from agentworld.contract.topics import TopicSpec

REPLAY_OF = "replay-of"
"""Header of a record that a replay wrote: the run that was replayed. Processors pass over such records:
what they would decide is decided already."""


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to be written. `topic` stands without prefix."""

    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    """None: the partitioner decides by key."""
    tombstone: bool = False
    """Write no value at all: removes the key from a compacted topic."""

    @classmethod
    def of(cls, spec: TopicSpec, event: Event, *, partition: int | None = None) -> OutRecord:
        """The record that carries `event`."""
        return cls(
            topic=spec.name,
            key=record_key(spec, event) if partition is None else None,
            value=encode(event),
            headers=tuple(record_headers(event)),
            partition=partition,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read. `topic` stands without prefix."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(topic=self.topic, partition=self.partition, offset=self.offset)


class Publisher(Protocol):
    """Writes to the log."""

    async def publish(self, record: OutRecord) -> Place | None:
        """Return when the record is durable; its place, or None where it waits in a spool.

        Raises `Unavailable` when it could be made durable nowhere: the caller must not answer
        as if it were.
        """
        ...

    async def close(self) -> None:
        """Finish what is under way."""
        ...


class LogReader(Protocol):
    """Reads topics in one consumer group; at-least-once."""

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """Up to `max_records`, in order per partition; empty after `timeout_s`."""
        ...

    def commit(self) -> None:
        """Everything polled so far is dealt with. Blocks until the broker knows."""
        ...

    def close(self) -> None:
        """Leave the group; what was not committed is read again by the next."""
        ...


class PlacedReader(Protocol):
    """A `LogReader` whose records are dealt with out of order."""

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """As `LogReader`'s."""
        ...

    def commit_to(self, positions: Mapping[tuple[str, int], int]) -> None:
        """All before these offsets is dealt with, by (topic, partition). Blocks until the broker knows.

        Partitions that this reader has no more are left out.
        """
        ...

    def close(self) -> None:
        """Leave the group; what was not committed is read again by the next."""
        ...


class PlaceReader(Protocol):
    """Reads single records by place."""

    def fetch(self, places: Sequence[Place], *, timeout_s: float = 30.0) -> dict[tuple[int, int], Record]:
        """Records of one topic by (partition, offset). Those that expired are absent.

        Raises `Unavailable` when the broker does not answer in time.
        """
        ...
