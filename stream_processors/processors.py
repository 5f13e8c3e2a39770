"""The processors by name, in the order in which data passes through them."""

from __future__ import annotations

from collections.abc import Callable

from stream_processors.batches.processor import BatchProcessor
from stream_processors.effects import PartitionProcessor
from stream_processors.groups.processor import GroupProcessor
from stream_processors.rules import RuleSource
from stream_processors.trajectories.processor import TrajectoryProcessor

CreateProcessor = Callable[[int, RuleSource], PartitionProcessor]

PROCESSORS: dict[str, CreateProcessor] = {
    "trajectory": TrajectoryProcessor,
    "group": GroupProcessor,
    "batch": BatchProcessor,
}
