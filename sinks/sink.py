"""The loop: gather records, store their rows, dead-letter what cannot be stored, commit.

The order is the guarantee: offsets are committed after ClickHouse has acknowledged every row and
the broker every dead letter. A crash in between repeats writes, which FINAL does not see.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from agentworld.contract.errors import MalformedEvent, Retryable
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import LogReader, OutRecord, Publisher, Record
from sinks.health import Health
from sinks.rows.build import build_rows
from sinks.settings import SinkSettings
from sinks.writer import Refusal, Shaped

logger = logging.getLogger(__name__)

CONSUMER = "sinks.clickhouse"
"""Consumer group (behind the prefix), and the name under which it dead-letters."""

T = TypeVar("T")

_POLL_RECORDS = 250
_FIRST_RETRY_MS = 100


class Writer(Protocol):
    """Stores rows (`ClickHouseWriter`)."""

    def write(self, batch: Sequence[Shaped]) -> list[Refusal]:
        """Store all but what is refused. Raises `Unavailable`."""
        ...


class Stopping(Exception):
    """Asked to stop while something was away; nothing was committed."""


class Sink:
    """One consumer. Edges are passed in; `run` returns when `stop` is set."""

    def __init__(
        self,
        settings: SinkSettings,
        *,
        reader: LogReader,
        writer: Writer,
        publisher: Publisher,
        health: Health,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._publisher = publisher
        self._health = health
        self._stop = stop
        self._uncommitted = False

    async def run(self) -> None:
        """Until stopped. What was gathered by then is stored, if ClickHouse is there."""
        with contextlib.suppress(Stopping):
            while not self._stop.is_set():
                if not await self.advance():
                    await asyncio.sleep(0.02)

    async def advance(self) -> int:
        """Gather, store and commit once; how many records that were. Raises `Stopping`."""
        records = await self._gather()
        if records:
            letters = await self._store(records)
            for letter in letters:
                await self._persist("broker", partial(self._publisher.publish, letter))
            self._uncommitted = True
        if self._uncommitted:
            await self._commit()
        return len(records)

    async def _gather(self) -> list[Record]:
        gathered: list[Record] = []
        size = 0
        deadline: float | None = None
        while len(gathered) < self._settings.batch_rows and size < self._settings.batch_bytes:
            wait_s = 0.25 if deadline is None else min(0.25, deadline - time.monotonic())
            if self._stop.is_set() or wait_s <= 0:
                break
            most = min(_POLL_RECORDS, self._settings.batch_rows - len(gathered))
            # A reader that cannot go on ends the process: a new one starts from what is committed.
            polled = await asyncio.to_thread(self._reader.poll, max_records=most, timeout_s=wait_s)
            if not polled and not gathered:
                break
            gathered += polled
            size += sum(len(record.value or b"") for record in polled)
            if gathered and deadline is None:
                deadline = time.monotonic() + self._settings.batch_ms / 1000
        return gathered

    async def _store(self, records: Sequence[Record]) -> list[OutRecord]:
        """Write all rows, slice by slice; returns the dead letters of what could not be written."""
        letters: list[OutRecord] = []
        for batch in _slices(records, letters, self._settings.batch_bytes):
            refusals = await self._persist(
                "clickhouse", partial(asyncio.to_thread, self._writer.write, batch)
            )
            for refusal in refusals:
                logger.error("ClickHouse refuses a row of %s: %s", refusal.record.place, refusal.detail)
                letters.append(
                    dead_letter(
                        refusal.record,
                        reason="clickhouse_refused",
                        detail=refusal.detail,
                        consumer=CONSUMER,
                    )
                )
        return letters

    async def _commit(self) -> None:
        # Not retried here: a rebalance may have taken the partitions away, and only polling
        # tells. What stays uncommitted is read and written again.
        try:
            await asyncio.to_thread(self._reader.commit)
        except Retryable as exc:
            self._health.trouble("broker", str(exc))
            logger.warning("%s; trying again", exc)
            await pause(self._stop, _FIRST_RETRY_MS)
        else:
            self._uncommitted = False
            self._health.well("broker")

    async def _persist(self, component: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works. Nothing more is polled meanwhile, so memory stays as it is."""
        pause_ms = _FIRST_RETRY_MS
        while True:
            try:
                result = await attempt()
            except Retryable as exc:
                self._health.trouble(component, str(exc))
                logger.warning("%s; next try in %d ms", exc, pause_ms)
                if self._stop.is_set():
                    raise Stopping from exc
                await pause(self._stop, pause_ms)
                pause_ms = min(2 * pause_ms, self._settings.retry_max_ms)
            else:
                self._health.well(component)
                return result


async def pause(stop: asyncio.Event, pause_ms: float) -> None:
    """Wait that long, or until asked to stop."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), pause_ms / 1000)


def _slices(records: Iterable[Record], letters: list[OutRecord], max_bytes: int) -> Iterator[list[Shaped]]:
    """Records with their rows, about `max_bytes` of rows at a time; malformed ones go to `letters`."""
    batch: list[Shaped] = []
    size = 0
    for record in records:
        try:
            shaped = Shaped(record, build_rows(record))
        except MalformedEvent as exc:
            logger.warning("malformed: %s: %s", record.place, exc)
            letters.append(dead_letter(record, reason=exc.reason, detail=str(exc), consumer=CONSUMER))
            continue
        if not shaped.rows:
            continue
        batch.append(shaped)
        size += sum(row.size_bytes() for row in shaped.rows)
        if size >= max_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
