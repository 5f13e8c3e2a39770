"""What one record changes: records to write to the log, and state to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agentworld.contract.errors import MalformedEvent
from agentworld.contract.topics import TopicSpec
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import REPLAY_OF, OutRecord, Record

StateKey = tuple[str, ...]
"""Kind of the entry, then the ids that name it."""

CLOCK_KEY: StateKey = ("clock",)


@dataclass(slots=True)
class Effects:
    """The outcome of one record, or of loading a partition."""

    outputs: list[OutRecord] = field(default_factory=list)
    """To be acknowledged by the broker before any of `writes` is made."""
    writes: dict[StateKey, bytes | None] = field(default_factory=dict)
    """New state by key; None removes."""
    decisive: bool = False
    """The writes are several entries of one decision: write them before anything that follows."""


class PartitionProcessor(Protocol):
    """The state of one partition of one topic, and what records do to it. No I/O.

    Equal records under equal rules give equal effects. A record seen again changes nothing that
    matters, also when the loaded state is ahead of it.
    """

    source: TopicSpec
    consumer: str
    """Name under which it dead-letters, and `source` of what it writes."""

    @property
    def open_count(self) -> int:
        """Entities with a deadline pending; while there are any, the partition's clock ticks."""
        ...

    def load(self, entries: Mapping[StateKey, bytes]) -> Effects:
        """Take over the partition's stored state; returns repairs of half-written decisions."""
        ...

    def process(self, record: Record) -> Effects:
        """Apply one record. Raises `MalformedEvent`, and `ContractViolation` where state is wrong."""
        ...


def handle(processor: PartitionProcessor, record: Record) -> Effects:
    """Apply one record; one that cannot be read goes to the dead-letter topic, a replay's is passed over."""
    if any(name == REPLAY_OF for name, _ in record.headers):
        return Effects()
    try:
        return processor.process(record)
    except MalformedEvent as exc:
        letter = dead_letter(record, reason=exc.reason, detail=str(exc), consumer=processor.consumer)
        return Effects(outputs=[letter])


def merge_writes(writes: Iterable[tuple[StateKey, bytes | None]]) -> list[tuple[StateKey, bytes | None]]:
    """Writes in sequence as the fewest that leave the same state, safe to be cut off anywhere.

    New entries come first, removals after them, the clock last: a cut leaves state that is behind
    its clock at no point, and nothing removed that its successor entry does not stand for.
    """
    merged: dict[StateKey, bytes | None] = {}
    for key, value in writes:
        merged.pop(key, None)
        merged[key] = value
    clock = merged.pop(CLOCK_KEY, None)
    ordered = sorted(merged.items(), key=lambda write: write[1] is None)
    if clock is not None:
        ordered.append((CLOCK_KEY, clock))
    return ordered
