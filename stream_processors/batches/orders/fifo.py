"""First ready, first out."""

from __future__ import annotations

from stream_processors.batches.state import GroupEntry
from stream_processors.rules import BatchRules


def fifo(entry: GroupEntry, rules: BatchRules) -> int:
    """By arrival."""
    return entry.arrival
