"""An in-memory log with the log's rules, for tests: partitions, offsets, groups, retention."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.contract.partitioner import partition_of
from agentworld.contract.topics import TOPICS_BY_NAME, TopicSpec
from agentworld.platform.log import OutRecord, Record


class InMemoryLog:
    """Topics as lists. `available = False` makes it behave as a broker that is away."""

    def __init__(self, partitions: int = 4) -> None:
        self.partitions = partitions
        self.available = True
        self._records: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self._low: dict[tuple[str, int], int] = defaultdict(int)
        self._committed: dict[tuple[str, str, int], int] = defaultdict(int)
        self._keyless = itertools.count()

    def append(self, record: OutRecord) -> Place:
        """Write one record."""
        if not self.available:
            raise Unavailable("the in-memory log is switched off")
        limit = TOPICS_BY_NAME[record.topic.removesuffix("-dlq")].max_message_bytes
        if len(record.value) > limit:
            raise InvalidInput(
                f"{record.topic}: {len(record.value)} bytes are more than a message may have ({limit})",
                code="record_too_large",
                status=413,
            )
        partition = record.partition
        if partition is None:
            key = record.key
            partition = (
                next(self._keyless) % self.partitions if key is None else partition_of(key, self.partitions)
            )
        records = self._records[record.topic, partition]
        records.append(
            Record(
                topic=record.topic,
                partition=partition,
                offset=len(records),
                key=record.key,
                value=None if record.tombstone else record.value,
                headers=record.headers,
                timestamp_ms=time.time_ns() // 1_000_000,
            )
        )
        return records[-1].place

    def expire(self, topic: str, partition: int, before_offset: int) -> None:
        """Drop records before an offset, as retention does."""
        self._low[topic, partition] = max(self._low[topic, partition], before_offset)

    def records(self, topic: str) -> list[Record]:
        """All retained records of a topic, partition by partition."""
        return [
            record
            for partition in range(self.partitions)
            for record in self._records[topic, partition][self._low[topic, partition] :]
        ]

    def publisher(self) -> InMemoryPublisher:
        """A publisher to this log."""
        return InMemoryPublisher(self)

    def reader(self, specs: Sequence[TopicSpec], *, group: str) -> InMemoryReader:
        """A reader of all partitions in `group`."""
        return InMemoryReader(self, specs, group)

    def fetch(self, places: Sequence[Place], *, timeout_s: float = 30.0) -> dict[tuple[int, int], Record]:
        """Records by (partition, offset); expired ones are absent."""
        if not self.available:
            raise Unavailable("the in-memory log is switched off")
        found = {}
        for place in places:
            at = place.topic, place.partition
            if self._low[at] <= place.offset < len(self._records[at]):
                found[place.partition, place.offset] = self._records[at][place.offset]
        return found


class InMemoryPublisher:
    """`Publisher` over an `InMemoryLog`."""

    def __init__(self, log: InMemoryLog) -> None:
        self.log = log

    async def publish(self, record: OutRecord) -> Place | None:
        """Append at once."""
        return self.log.append(record)

    async def close(self) -> None:
        """Nothing is under way."""


class InMemoryReader:
    """`LogReader` over an `InMemoryLog`."""

    def __init__(self, log: InMemoryLog, specs: Sequence[TopicSpec], group: str) -> None:
        self._log = log
        self._group = group
        self._position = {
            (spec.name, p): log._committed[group, spec.name, p]
            for spec in specs
            for p in range(log.partitions)
        }

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """What is there; never waits. Nothing while the log is away."""
        if not self._log.available:
            return []
        polled: list[Record] = []
        for at, position in self._position.items():
            start = max(position, self._log._low[at])
            chunk = self._log._records[at][start : start + max_records - len(polled)]
            polled += chunk
            self._position[at] = start + len(chunk)
        return polled

    def commit(self) -> None:
        """Remember the positions for the group."""
        if not self._log.available:
            raise Unavailable("the in-memory log is switched off")
        for (topic, partition), position in self._position.items():
            self._log._committed[self._group, topic, partition] = position

    def commit_to(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Remember these positions for the group."""
        if not self._log.available:
            raise Unavailable("the in-memory log is switched off")
        for (topic, partition), position in positions.items():
            self._log._committed[self._group, topic, partition] = position

    def close(self) -> None:
        """Uncommitted records are read again by the group's next reader."""
