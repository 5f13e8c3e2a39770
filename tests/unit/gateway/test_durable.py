"""The durable publisher: broker or spool, in order, never in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from gateway.durable import DurablePublisher
from gateway.frames import encode_frame
from gateway.spool import Spool
from gateway.tail import Tail

MiB = 1024 * 1024


class ScriptedBroker:
    """A broker over an in-memory log that can be away, silent, or crash and lose records."""

    def __init__(self) -> None:
        self.log = InMemoryLog(partitions=1)
        self.silent = False
        """Takes records and never acknowledges."""
        self.refused: set[bytes] = set()
        self._told: list[Callable[[], None]] = []

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        future: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if not self.log.available:
            future.set_exception(Unavailable("away"))
        elif record.value in self.refused:
            raise InvalidInput("too large for this topic", code="record_refused", status=413)
        elif not self.silent:
            place = self.log.append(record)
            asyncio.get_running_loop().call_soon(_settle, future, place)
        return future

    async def probe(self) -> bool:
        await asyncio.sleep(0)
        return self.log.available

    def on_away(self, told: Callable[[], None]) -> None:
        self._told.append(told)

    def go_away(self) -> None:
        self.log.available = False
        for told in self._told:
            told()

    def crash(self, *, losing: int) -> None:
        """Away, and its last records are gone."""
        self.go_away()
        kept = self.numbers[:-losing] if losing else self.numbers
        self.log = InMemoryLog(partitions=1)
        for number in kept:
            self.log.append(record(number))
        self.log.available = False

    def come_back(self) -> None:
        self.log.available = True
        self.silent = False

    @property
    def numbers(self) -> list[int]:
        return [int((r.value or b"").split(b":")[0]) for r in self.log.records("trajectory-events")]

    async def close(self) -> None: ...


def _settle(future: asyncio.Future[Place], place: Place) -> None:
    if not future.done():
        future.set_result(place)


def record(number: int) -> OutRecord:
    return OutRecord(topic="trajectory-events", key=b"p", value=b"%d:" % number)


async def publisher_over(
    broker: ScriptedBroker, folder: Path, *, keep_ms: int = 0, max_bytes: int = MiB, ack_timeout_ms: int = 50
) -> DurablePublisher:
    publisher = DurablePublisher(
        broker,
        Spool(folder, max_bytes=max_bytes, segment_bytes=500),
        tail=Tail(folder, keep_ms=keep_ms) if keep_ms else None,
        ack_timeout_ms=ack_timeout_ms,
        probe_interval_ms=1,
    )
    await publisher.start()
    return publisher


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def spooled(publisher: DurablePublisher) -> int:
    size = publisher.state["spool_bytes"]
    assert isinstance(size, int)
    return size


def first_seen(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


async def test_an_acknowledged_record_has_its_place(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    assert await publisher.publish(record(0)) == broker.log.records("trajectory-events")[0].place
    await publisher.close()


async def test_while_the_broker_is_away_records_wait_in_the_spool_and_follow_in_order(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    await publisher.publish(record(0))
    broker.go_away()
    for number in range(1, 40):
        assert await publisher.publish(record(number)) is None
    assert broker.numbers == [0]
    broker.come_back()
    await until(lambda: spooled(publisher) == 0)
    assert broker.numbers == list(range(40))
    assert await publisher.publish(record(40)) is not None
    await publisher.close()


async def test_a_broker_that_does_not_acknowledge_in_time_is_as_good_as_away(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    broker.silent = True
    assert await publisher.publish(record(0)) is None
    assert await publisher.publish(record(1)) is None
    broker.log.available = False
    broker.go_away()
    broker.come_back()
    await until(lambda: spooled(publisher) == 0)
    assert first_seen(broker.numbers) == [0, 1]
    await publisher.close()


async def test_it_has_caught_up_only_once_all_of_an_earlier_process_is_acknowledged(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    assert publisher.caught_up
    broker.go_away()
    await publisher.publish(record(0))
    assert not publisher.caught_up
    await publisher.close()
    broker.silent = broker.log.available = True
    again = await publisher_over(broker, tmp_path)
    await until(lambda: again.state["broker"] == "up")
    assert not again.caught_up, "its last batch is sent and not acknowledged"
    broker.go_away()
    broker.come_back()
    await until(lambda: again.caught_up)
    assert broker.numbers == [0]
    await again.close()


async def test_records_published_during_the_drain_keep_their_order(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    broker.go_away()
    for number in range(100):
        await publisher.publish(record(number))
    broker.come_back()
    for number in range(100, 400):
        await publisher.publish(record(number))
    await until(lambda: spooled(publisher) == 0 and len(set(broker.numbers)) == 400)
    assert first_seen(broker.numbers) == list(range(400))
    await publisher.close()


async def test_under_steady_load_the_publisher_gets_back_to_the_broker(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    broker.go_away()
    count = iter(range(1_000_000))
    direct = asyncio.Event()

    async def load() -> None:
        while not direct.is_set():
            if await publisher.publish(record(next(count))) is not None:
                direct.set()

    calls = [asyncio.create_task(load()) for _ in range(30)]
    await until(lambda: spooled(publisher) > 1000)
    broker.come_back()
    async with asyncio.timeout(90):
        await asyncio.gather(*calls)
    await until(lambda: spooled(publisher) == 0)
    sent = next(count)
    assert sorted(set(broker.numbers)) == list(range(sent))
    await publisher.close()


async def test_a_restart_drains_what_is_left(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    broker.go_away()
    for number in range(30):
        await publisher.publish(record(number))
    await publisher.close()
    broker.come_back()
    again = await publisher_over(broker, tmp_path)
    await again.publish(record(30))
    await until(lambda: spooled(again) == 0)
    assert first_seen(broker.numbers) == list(range(31))
    await again.close()


async def test_a_full_spool_is_unavailable_and_says_what_to_do(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path, max_bytes=4 * len(encode_frame(record(0))) - 1)
    broker.go_away()
    durable = [0, 1, 2]
    for number in durable:
        await publisher.publish(record(number))
    with pytest.raises(Unavailable, match="SPOOL_MAX_BYTES"):
        await publisher.publish(record(3))
    assert publisher.refusing, publisher.state
    with pytest.raises(Unavailable, match="SPOOL_MAX_BYTES"):
        publisher.check_room()
    broker.come_back()
    await until(lambda: spooled(publisher) == 0)
    assert broker.numbers == durable
    publisher.check_room()
    assert await publisher.publish(record(3)) is not None
    await publisher.close()


async def test_a_record_its_topic_would_never_take_is_refused_before_the_spool(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    broker.go_away()
    with pytest.raises(InvalidInput, match="shorter"):
        await publisher.publish(OutRecord("trajectory-events", b"p", b"x" * 17 * MiB))
    assert spooled(publisher) == 0
    await publisher.close()


async def test_a_record_refused_for_good_blocks_nothing_and_is_kept_for_people(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path)
    broker.go_away()
    for number in range(4):
        await publisher.publish(record(number))
    broker.refused.add(record(2).value)
    broker.come_back()
    await until(lambda: spooled(publisher) == 0)
    assert broker.numbers == [0, 1, 3]
    assert (tmp_path / "refused.log").read_bytes() == encode_frame(record(2))
    await publisher.close()


async def test_the_acknowledged_tail_is_published_again_after_a_crash(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path, keep_ms=60_000)
    for number in range(20):
        assert await publisher.publish(record(number)) is not None
    broker.crash(losing=8)
    for number in range(20, 25):
        await publisher.publish(record(number))
    assert broker.numbers == list(range(12))
    broker.come_back()
    await until(lambda: spooled(publisher) == 0 and 24 in broker.numbers)
    assert first_seen(broker.numbers) == list(range(25))
    broker.crash(losing=len(broker.numbers))
    broker.come_back()
    await until(lambda: 24 in broker.numbers)
    assert first_seen(broker.numbers) == list(range(25)), "what was repeated is kept again"
    await publisher.close()


async def test_the_tail_outlives_the_gateway(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    publisher = await publisher_over(broker, tmp_path, keep_ms=60_000)
    for number in range(5):
        await publisher.publish(record(number))
    await publisher.close()
    broker.crash(losing=5)
    broker.come_back()
    again = await publisher_over(broker, tmp_path, keep_ms=60_000)
    await until(lambda: broker.numbers == list(range(5)))
    await again.close()


async def test_the_tail_forgets_what_is_older_than_it_keeps(tmp_path: Path) -> None:
    now = 0.0
    tail = Tail(tmp_path, keep_ms=1000, clock=lambda: now)
    for number in range(100):
        now += 0.1
        tail.append(record(number))
    tail.hold()
    kept = [r.value for n in tail.closed() for r in tail.read(n)]
    assert kept[-10:] == [record(n).value for n in range(90, 100)]
    assert len(kept) <= 20
    now += 100
    tail.append(record(100))
    now += 1
    tail.append(record(101))
    assert [r.value for n in tail.closed() for r in tail.read(n)][:-1] == kept, "held until replayed"
    tail.close()
