"""Makes effects durable in the order that loses nothing: outputs, then state, then the offset."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Place
from agentworld.platform.log import OutRecord
from stream_processors.effects import Effects, StateKey, merge_writes
from stream_processors.state_table import StateTable

_MAX_MERGED = 500
_MAX_WAITING = 2_000
_QUEUE_FULL_WAIT_S = 0.05


class Submitter(Protocol):
    """A publisher that takes a record now and tells its place later."""

    def submit(self, record: OutRecord) -> Awaitable[Place]:
        """Raises `Unavailable` when its queue is full."""
        ...


@dataclass(slots=True)
class _Entry:
    partition: int
    outputs: Sequence[Awaitable[Place]]
    effects: Effects
    done: Callable[[], Awaitable[object]] | None


class Outbox:
    """One processor's effects on their way to the broker.

    Outputs are sent at once. When they are acknowledged, the state changes that go with them are
    written to the changelog (several records' in one go, see `merge_writes`); when those are
    acknowledged, the source records are marked as done, so that Faust may commit their offsets. A
    crash in between repeats outputs under the same ids, and never skips a record.
    """

    def __init__(self, submitter: Submitter, table: StateTable) -> None:
        self._submitter = submitter
        self._table = table
        self._waiting: deque[_Entry] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._room.set()

    async def put(
        self, partition: int, effects: Effects, done: Callable[[], Awaitable[object]] | None
    ) -> None:
        """Send the outputs and queue the rest; waits while too much is under way."""
        await self._room.wait()
        outputs = [await self._submit(record) for record in effects.outputs]
        self._waiting.append(_Entry(partition, outputs, effects, done))
        self._idle.clear()
        self._filled.set()
        if len(self._waiting) >= _MAX_WAITING:
            self._room.clear()

    async def drained(self) -> None:
        """Return when everything queued is durable."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled. Raises `Unavailable` when the broker stays away too long."""
        while True:
            await self._filled.wait()
            entries = self._next_entries()
            for entry in entries:
                for output in entry.outputs:
                    await output
            await self._write_state(entries)
            for entry in entries:
                if entry.done is not None:
                    await entry.done()
            if not self._waiting:
                self._filled.clear()
                self._idle.set()
            self._room.set()

    def _next_entries(self) -> list[_Entry]:
        """The oldest entries; of each partition none that follows a decisive one."""
        entries: list[_Entry] = []
        decided: set[int] = set()
        while self._waiting and len(entries) < _MAX_MERGED and self._waiting[0].partition not in decided:
            entry = self._waiting.popleft()
            entries.append(entry)
            if entry.effects.decisive:
                decided.add(entry.partition)
        return entries

    async def _write_state(self, entries: Sequence[_Entry]) -> None:
        by_partition: dict[int, list[tuple[StateKey, bytes | None]]] = {}
        for entry in entries:
            by_partition.setdefault(entry.partition, []).extend(entry.effects.writes.items())
        changes = [
            self._table.change(partition, key, value)
            for partition, writes in by_partition.items()
            for key, value in merge_writes(writes)
        ]
        acks = [await self._submit(change) for change in changes]
        for change, ack in zip(changes, acks, strict=True):
            self._table.note(change, await ack)

    async def _submit(self, record: OutRecord) -> Awaitable[Place]:
        while True:
            try:
                return self._submitter.submit(record)
            except Unavailable:
                await asyncio.sleep(_QUEUE_FULL_WAIT_S)
