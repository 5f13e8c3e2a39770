"""The loop over an in-memory log: commit last, lose nothing, stop cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentworld.contract.errors import Unavailable
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Publisher, Record
from agentworld.platform.memory import InMemoryLog
from sinks.health import Health
from sinks.rows.build import SOURCES
from sinks.settings import SinkSettings
from sinks.sink import CONSUMER, Sink
from sinks.writer import Refusal, Shaped
from tests.support import builders as b


class Shelf:
    """A writer that keeps what it gets, may be away, and refuses some trajectories."""

    def __init__(self) -> None:
        self.stored: list[Record] = []
        self.largest = 0
        self.away = 0
        self.refused: set[bytes] = set()

    def write(self, batch: Sequence[Shaped]) -> list[Refusal]:
        if self.away:
            self.away -= 1
            raise Unavailable("the shelf is away")
        self.largest = max(self.largest, len(batch))
        self.stored += [shaped.record for shaped in batch if shaped.record.key not in self.refused]
        return [Refusal(s.record, "too odd") for s in batch if s.record.key in self.refused]


class AwayPublisher:
    """A publisher whose broker is away."""

    async def publish(self, record: OutRecord) -> None:
        raise Unavailable("the broker is away")

    async def close(self) -> None: ...


def make(
    log: InMemoryLog,
    shelf: Shelf,
    *,
    health: Health | None = None,
    publisher: Publisher | None = None,
    batch_bytes: int = 10**6,
) -> tuple[Sink, asyncio.Event]:
    stop = asyncio.Event()
    settings = SinkSettings(batch_ms=0, batch_rows=100, batch_bytes=batch_bytes, retry_max_ms=1)
    sink = Sink(
        settings,
        reader=log.reader(SOURCES, group=CONSUMER),
        writer=shelf,
        publisher=publisher or log.publisher(),
        health=health or Health({}),
        stop=stop,
    )
    return sink, stop


def fill(log: InMemoryLog, count: int = 3) -> None:
    for index in range(count):
        steps = b.rollout(f"t-{index}", f"task-{index}")
        log.append(OutRecord.of(TRAJECTORY_EVENTS, b.registered(f"t-{index}", f"task-{index}")))
        for step in steps:
            log.append(OutRecord.of(TRAJECTORY_EVENTS, step))
        log.append(OutRecord.of(TRAJECTORIES, b.sealed(steps, prompt_id=f"task-{index}")))


async def test_everything_is_stored_once_and_then_committed(memory_log: InMemoryLog) -> None:
    fill(memory_log)
    shelf = Shelf()
    sink, _ = make(memory_log, shelf)
    assert await sink.advance() == 15
    assert await sink.advance() == 0
    again, _ = make(memory_log, shelf)
    assert await again.advance() == 0
    assert len(shelf.stored) == 15


async def test_nothing_is_committed_while_the_store_is_away(memory_log: InMemoryLog) -> None:
    fill(memory_log)
    shelf, health = Shelf(), Health({})
    shelf.away = 10**9
    sink, stop = make(memory_log, shelf, health=health)
    running = asyncio.create_task(sink.run())
    while not health.look():
        await asyncio.sleep(0.001)
    assert health.look() == {"clickhouse": "the shelf is away"}
    stop.set()
    await running
    shelf.away = 0
    again, _ = make(memory_log, shelf, health=health)
    assert await again.advance() == 15
    assert len(shelf.stored) == 15


async def test_store_that_returns_is_used_again_without_a_restart(memory_log: InMemoryLog) -> None:
    fill(memory_log)
    shelf, health = Shelf(), Health({})
    shelf.away = 3
    sink, _ = make(memory_log, shelf, health=health)
    assert await sink.advance() == 15
    assert len(shelf.stored) == 15
    assert health.look() == {}


async def test_malformed_record_is_dead_lettered_with_its_bytes_and_the_rest_stored(
    memory_log: InMemoryLog,
) -> None:
    fill(memory_log, 1)
    place = memory_log.append(OutRecord(topic=TRAJECTORIES.name, key=b"k", value=b"not json"))
    shelf = Shelf()
    sink, _ = make(memory_log, shelf)
    await sink.advance()
    assert len(shelf.stored) == 5
    (letter,) = memory_log.records(TRAJECTORIES.dlq_name)
    assert letter.value == b"not json"
    headers = dict(letter.headers)
    assert headers["dlq-reason"] == b"malformed"
    assert headers["dlq-consumer"] == CONSUMER.encode()
    assert headers["dlq-offset"] == str(place.offset).encode()


async def test_refused_record_is_dead_lettered(memory_log: InMemoryLog) -> None:
    fill(memory_log, 2)
    shelf = Shelf()
    shelf.refused = {b"task-1"}
    sink, _ = make(memory_log, shelf)
    await sink.advance()
    letters = [*memory_log.records(TRAJECTORIES.dlq_name), *memory_log.records(TRAJECTORY_EVENTS.dlq_name)]
    assert len(letters) == 5
    assert {dict(letter.headers)["dlq-reason"] for letter in letters} == {b"clickhouse_refused"}


async def test_offset_waits_for_the_dead_letter(memory_log: InMemoryLog) -> None:
    memory_log.append(OutRecord(topic=TRAJECTORIES.name, key=b"k", value=b"not json"))
    health = Health({})
    sink, stop = make(memory_log, Shelf(), health=health, publisher=AwayPublisher())
    running = asyncio.create_task(sink.run())
    while "broker" not in health.look():
        await asyncio.sleep(0.001)
    stop.set()
    await running
    again, _ = make(memory_log, Shelf())
    assert await again.advance() == 1
    assert len(memory_log.records(TRAJECTORIES.dlq_name)) == 1


async def test_rows_are_written_in_slices_so_that_memory_is_bounded(memory_log: InMemoryLog) -> None:
    fill(memory_log, 5)
    shelf = Shelf()
    sink, _ = make(memory_log, shelf, batch_bytes=1)
    while await sink.advance():
        pass
    assert len(shelf.stored) == 25
    assert shelf.largest == 1
