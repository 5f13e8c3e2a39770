"""What reaches the agents of a Faust consumer: every record, in order, whatever moves meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from stream_processors.delivery import ContiguousConsumer

TOPIC = "agentworld.trajectory-events"
HERE, OTHER = TP(TOPIC, 0), TP(TOPIC, 1)


@dataclass(frozen=True)
class Fetched:
    offset: int


class Log:
    """A log of two partitions behind the consumer: fetches from positions and moves them."""

    def __init__(self, *missing: int, length: int = 40) -> None:
        self.offsets = {tp: [n for n in range(length) if n not in missing] for tp in (HERE, OTHER)}
        self.positions = dict.fromkeys((HERE, OTHER), 0)
        self.committed = dict.fromkeys((HERE, OTHER), 0)
        self.skip_once = 0
        self.fetching = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    def take(self, partitions: Any, most: int) -> dict[TP, list[Fetched]]:
        # Like aiokafka's: no partitions mean all of them.
        taken = {}
        for tp in partitions or self.offsets:
            self.positions[tp] += self.skip_once
            self.skip_once = 0
            found = [n for n in self.offsets[tp] if n >= self.positions[tp]][:most]
            if found:
                self.positions[tp] = found[-1] + 1
                taken[tp] = [Fetched(n) for n in found]
        return taken


class Consumer(ContiguousConsumer):
    """The consumer over `Log` instead of a broker."""

    def on_init(self) -> None:
        self.log_: Log
        self.gaps: list[tuple[int, int]] = []

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        self.log_.fetching.set()
        await self.log_.answers.wait()
        await asyncio.sleep(0)
        records = self.log_.take(active_partitions, 10)
        if not records:
            await asyncio.sleep(0.01)
        return records

    async def seek_to_committed(self) -> Any:
        self.log_.positions.update(self.log_.committed)
        return dict(self.log_.committed)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        self.gaps.append((offset_from, offset_to))

    def _to_message(self, tp: TP, record: Any) -> Any:
        return SimpleNamespace(tp=tp, offset=record.offset)


class Thread:
    def __init__(self, log: Log) -> None:
        self.log = log

    async def seek_wait(self, partitions: Any) -> None:
        self.log.positions.update(partitions)


class Running:
    """A consumer whose delivery runs; what it delivers of `HERE` lands in `offsets`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offsets: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        app = faust.App("test", broker="kafka://127.0.0.1:1", store="memory://")
        app.topics.acks_enabled_for = lambda topic: True
        self.consumer = Consumer(
            app.transport,
            callback=self._take,
            on_partitions_revoked=self._nothing,
            on_partitions_assigned=self._nothing,
        )
        self.consumer.log_ = log
        self.consumer._thread = Thread(log)
        self.consumer._set_active_tps({HERE})
        self.consumer.resume_flow()
        fetcher = SimpleNamespace(should_stop=False)
        self.task = asyncio.create_task(self.consumer._drain_messages(fetcher))

    async def _nothing(self, *_: Any) -> None: ...

    async def _take(self, message: Any) -> None:
        await self.gate.wait()
        self.offsets.append(message.offset)

    async def until(self, last: int, *, since: int = 0) -> list[int]:
        async with asyncio.timeout(20):
            while last not in self.offsets[since:]:
                await asyncio.sleep(0.001)
        return self.offsets[since:]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


async def test_records_come_in_order_once() -> None:
    running = Running(Log())
    assert await running.until(39) == list(range(40))
    await running.stop()


async def test_partitions_that_become_inactive_during_a_fetch_do_not_widen_it() -> None:
    log = Log()
    log.answers.clear()
    running = Running(log)
    await log.fetching.wait()
    running.consumer.pause_partitions({HERE})
    log.answers.set()
    await running.until(9)
    assert log.positions == {HERE: 10, OTHER: 0}
    await running.stop()


async def test_positions_wait_for_what_is_being_delivered_and_nothing_is_skipped() -> None:
    log = Log()
    running = Running(log)
    await running.until(12)
    running.gate.clear()
    await asyncio.sleep(0.02)
    running.consumer.stop_flow()
    log.committed[HERE] = 5
    await running.consumer.perform_seek()
    before = len(running.offsets)
    running.gate.set()
    running.consumer.resume_flow()
    assert await running.until(39, since=before) == list(range(5, 40))
    assert running.consumer.gaps == []
    await running.stop()


async def test_a_gap_in_the_log_is_passed_after_it_was_read_again(caplog: pytest.LogCaptureFixture) -> None:
    running = Running(Log(*range(7, 19)))
    assert await running.until(39) == [*range(7), *range(19, 40)]
    assert running.consumer.gaps == [(7, 18)]
    assert "has no records 7 to 18" in caplog.text
    await running.stop()


async def test_records_that_a_fetch_passed_over_are_read_again() -> None:
    log = Log()
    running = Running(log)
    await running.until(9)
    log.skip_once = 4
    assert await running.until(39) == list(range(40))
    assert running.consumer.gaps == []
    await running.stop()


async def test_an_error_of_the_callback_ends_the_delivery() -> None:
    running = Running(Log())

    async def fail(message: Any) -> None:
        raise RuntimeError("injected")

    running.consumer.callback = fail
    with pytest.raises(RuntimeError, match="injected"):
        await asyncio.wait_for(running.task, 20)
