"""One processor of the worker: its partitions, its table, its outbox. What a Faust agent calls."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from agentworld.contract.events import ClockTicked
from agentworld.contract.ids import new_id
from agentworld.contract.topics import TopicSpec
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.metrics import GaugeName, gauge
from stream_processors.effects import PartitionProcessor, handle
from stream_processors.outbox import Outbox
from stream_processors.state_table import StateTable

logger = logging.getLogger(__name__)

_OPEN_GAUGES: dict[str, GaugeName] = {
    "trajectory": "processor_open_trajectories",
    "group": "processor_open_groups",
}
_QUEUE_GAUGES: dict[str, tuple[GaugeName, ...]] = {
    "batch": ("processor_waiting_groups", "processor_unconsumed_batches"),
}
"""Set by the processors themselves, by run and channel."""


class Stage:
    """Applies records of one topic to the partitions that this worker has."""

    def __init__(
        self,
        name: str,
        source: TopicSpec,
        create: Callable[[int], PartitionProcessor],
        table: StateTable,
        outbox: Outbox,
    ) -> None:
        self.name = name
        self.source = source
        self.outbox = outbox
        self.processed = 0
        """Records applied since start."""
        self.next_offsets: dict[int, int] = {}
        """Offset after the last record applied, by partition."""
        self._create = create
        self._table = table
        self._partitions: dict[int, PartitionProcessor] = {}

    @property
    def partitions(self) -> Collection[int]:
        """Those whose state is loaded here."""
        return self._partitions.keys()

    def release(self) -> None:
        """Take no more records: the partitions may go to another worker."""
        for partition in self._partitions:
            self._set_gauge(partition, 0)
        for name in _QUEUE_GAUGES.get(self.name, ()):
            gauge(name, "run", "channel").clear()
        self._partitions = {}
        self.next_offsets = {}

    async def load(self, partitions: Iterable[int]) -> None:
        """Take over partitions whose state Faust has just recovered."""
        wanted = sorted(partitions)
        self._table.keep_only(wanted)
        loaded = {}
        for partition in wanted:
            processor = self._create(partition)
            repairs = processor.load(self._table.entries(partition))
            if repairs.writes:
                logger.warning("%s/%d: %d repairs of state", self.name, partition, len(repairs.writes))
                await self.outbox.put(partition, repairs, None)
            loaded[partition] = processor
            self._set_gauge(partition, processor.open_count)
        self._partitions = loaded

    async def take(self, record: Record, done: Callable[[], Awaitable[object]]) -> None:
        """Apply one record; `done` is called when its effects are durable.

        A record of a partition that is not (or no longer) here is left to whoever has it.
        """
        processor = self._partitions.get(record.partition)
        if processor is None:
            return
        effects = handle(processor, record)
        self.processed += 1
        self.next_offsets[record.partition] = record.offset + 1
        self._set_gauge(record.partition, processor.open_count)
        await self.outbox.put(record.partition, effects, done)

    def ticks(self, now_ms: int) -> list[OutRecord]:
        """One `ClockTicked` for each partition in which something is open."""
        return [
            OutRecord.of(
                self.source,
                ClockTicked(
                    event_id=new_id(),
                    event_time_ms=now_ms,
                    source="stream-processors.clock",
                    partition=partition,
                ),
                partition=partition,
            )
            for partition, processor in self._partitions.items()
            if processor.open_count
        ]

    def open_counts(self) -> dict[int, int]:
        """Open entities by partition."""
        return {partition: processor.open_count for partition, processor in self._partitions.items()}

    def _set_gauge(self, partition: int, value: int) -> None:
        name = _OPEN_GAUGES.get(self.name)
        if name is not None:
            gauge(name, "partition").labels(str(partition)).set(value)


def to_record(source: TopicSpec, message: Any) -> Record:
    """A Faust message as a `Record`."""
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=source.name,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple((str(name), value or b"") for name, value in pairs),
        timestamp_ms=int(message.timestamp * 1000) if message.timestamp else 0,
    )
