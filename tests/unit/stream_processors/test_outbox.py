"""Outputs, then state, then the offset: each waits for the broker's word on the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Place
from agentworld.platform.log import OutRecord
from stream_processors.effects import CLOCK_KEY, Effects
from stream_processors.outbox import Outbox
from stream_processors.state_table import StateTable


class Broker:
    """Takes records and acknowledges them when told to."""

    def __init__(self) -> None:
        self.taken: list[tuple[OutRecord, asyncio.Future[Place]]] = []
        self.full = False

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        if self.full:
            raise Unavailable("full")
        future: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self.taken.append((record, future))
        return future

    @property
    def topics(self) -> list[str]:
        return [record.topic for record, _ in self.taken]

    async def acknowledge(self) -> None:
        """Everything taken so far; then let the outbox go on."""
        for offset, (record, future) in enumerate(self.taken):
            if not future.done():
                future.set_result(Place(topic=record.topic, partition=0, offset=offset))
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Bench:
    def __init__(self) -> None:
        self.broker = Broker()
        self.data: dict[bytes, bytes] = {}
        self.offsets: dict[tuple[str, int], int] = {("full-changelog", 0): -1}
        recovery = SimpleNamespace(active_offsets=self.offsets)
        app = SimpleNamespace(tables=SimpleNamespace(recovery=recovery))
        table = StateTable(
            SimpleNamespace(data=self.data, app=app),
            changelog="changelog",
            changelog_full_name="full-changelog",
        )
        self.outbox = Outbox(self.broker, table)
        self.table = table
        self.done: list[str] = []

    async def put(
        self, name: str, *, partition: int = 0, decisive: bool = False, output: bool = True
    ) -> None:
        async def done() -> None:
            self.done.append(name)

        outputs = [OutRecord(topic="out", key=None, value=name.encode())] if output else []
        effects = Effects(
            outputs=outputs, writes={("k", name): b"v", CLOCK_KEY: name.encode()}, decisive=decisive
        )
        await self.outbox.put(partition, effects, done)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    running = asyncio.create_task(made.outbox.run())
    yield made
    running.cancel()


async def test_state_waits_for_outputs_and_the_offset_for_state(bench: Bench) -> None:
    await bench.put("a")
    await settled()
    assert bench.broker.topics == ["out"]
    assert (bench.data, bench.done) == ({}, [])
    await bench.broker.acknowledge()
    assert bench.broker.topics == ["out", "changelog", "changelog"]
    assert bench.done == []
    await bench.broker.acknowledge()
    assert bench.done == ["a"]
    assert bench.table.entries(0) == {("k", "a"): b"v", CLOCK_KEY: b"a"}
    assert bench.table.entries(1) == {}
    assert bench.offsets == {("full-changelog", 0): 2}
    await bench.outbox.drained()


async def test_several_records_share_one_write_of_the_same_key(bench: Bench) -> None:
    for name in "abc":
        await bench.put(name, output=False)
    await settled()
    assert len(bench.broker.taken) == 4
    await bench.broker.acknowledge()
    assert bench.done == ["a", "b", "c"]
    assert bench.table.entries(0)[CLOCK_KEY] == b"c"


async def test_nothing_is_written_together_with_what_follows_a_decision(bench: Bench) -> None:
    await bench.put("a", decisive=True, output=False)
    await bench.put("b", output=False)
    await settled()
    assert len(bench.broker.taken) == 2
    await bench.broker.acknowledge()
    assert bench.done == ["a"]
    await bench.broker.acknowledge()
    assert bench.done == ["a", "b"]


async def test_a_decision_holds_up_only_its_own_partition(bench: Bench) -> None:
    await bench.put("a", partition=0, decisive=True, output=False)
    await bench.put("b", partition=1, decisive=True, output=False)
    await bench.put("c", partition=1, output=False)
    await settled()
    assert len(bench.broker.taken) == 4
    await bench.broker.acknowledge()
    assert bench.done == ["a", "b"]


async def test_a_full_send_queue_is_waited_for(bench: Bench) -> None:
    bench.broker.full = True
    putting = asyncio.create_task(bench.put("a"))
    await settled()
    assert not putting.done()
    bench.broker.full = False
    await putting
    assert bench.broker.topics == ["out"]


async def test_an_output_that_is_not_acknowledged_ends_the_outbox_before_any_state() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.outbox.run())
    await bench.put("a")
    bench.broker.taken[0][1].set_exception(Unavailable("gone"))
    with pytest.raises(Unavailable, match="gone"):
        await running
    assert (bench.data, bench.done) == ({}, [])


async def test_other_partitions_entries_are_forgotten() -> None:
    bench = Bench()
    for partition in (0, 1):
        change = bench.table.change(partition, ("k", "x"), b"v")
        bench.table.note(change, Place(topic="changelog", partition=partition, offset=5))
    bench.table.keep_only([1])
    assert (bench.table.entries(0), bench.table.entries(1)) == ({}, {("k", "x"): b"v"})
    gone = bench.table.change(1, ("k", "x"), None)
    assert gone.tombstone
    bench.table.note(gone, Place(topic="changelog", partition=1, offset=6))
    assert bench.data == {}
