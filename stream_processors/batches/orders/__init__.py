"""Which waiting groups leave first. One order per file: a sort key, ties by arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stream_processors.batches.orders.curriculum import curriculum
from stream_processors.batches.orders.fifo import fifo
from stream_processors.batches.orders.freshest import freshest
from stream_processors.batches.state import GroupEntry
from stream_processors.rules import BatchOrder, BatchRules

ORDERS: Mapping[BatchOrder, Callable[[GroupEntry, BatchRules], Any]] = {
    "fifo": fifo,
    "freshest": freshest,
    "curriculum": curriculum,
}

__all__ = ["ORDERS"]
