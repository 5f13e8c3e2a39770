"""The newest policy version first: what is closest to the weights that will be updated."""

from __future__ import annotations

from stream_processors.batches.staleness import oldest_version
from stream_processors.batches.state import GroupEntry
from stream_processors.rules import BatchRules


def freshest(entry: GroupEntry, rules: BatchRules) -> tuple[bool, int, int]:
    """By the oldest version in the group, greatest first; groups without a known version last."""
    version = oldest_version(entry)
    return version is None, -(version or 0), entry.arrival
