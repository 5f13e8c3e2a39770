"""What the log guarantees, over the in-memory fake, the embedded broker and real Kafka."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import pytest
from confluent_kafka import TopicPartition

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.contract.partitioner import partition_of
from agentworld.contract.topics import ALL_TOPICS, TRAJECTORIES, TRAJECTORY_EVENTS, TopicSpec
from agentworld.platform.kafka import admin_client, ensure_topics, topic_name
from agentworld.platform.log import LogReader, OutRecord, PlaceReader, Publisher, Record
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reader import KafkaPlaceReader, KafkaReader
from agentworld.platform.settings import KafkaSettings
from infra.local.ports import free_port

PARTITIONS = 4
MB = 1_000_000


@dataclass
class LogUnderTest:
    publisher: Callable[[], Publisher]
    reader: Callable[[str], LogReader]
    places: Callable[[TopicSpec], PlaceReader]
    expire: Callable[[str, int, int], None]
    away: Callable[[], LogUnderTest]
    """The same kind of log when nothing answers."""


def _memory(log: InMemoryLog) -> LogUnderTest:
    def away() -> LogUnderTest:
        off = InMemoryLog(PARTITIONS)
        off.available = False
        return _memory(off)

    return LogUnderTest(
        publisher=log.publisher,
        reader=lambda group: log.reader([TRAJECTORY_EVENTS], group=group),
        places=lambda _: log,
        expire=log.expire,
        away=away,
    )


def _kafka(
    settings: KafkaSettings, opened: list[KafkaReader | KafkaPlaceReader], delivery_timeout_ms: int = 20_000
) -> LogUnderTest:
    def reader(group: str) -> LogReader:
        group = settings.topic_prefix + group
        member = KafkaReader(settings, [TRAJECTORY_EVENTS], group=group, client_id="conformance")
        opened.append(member)
        return member

    def places(spec: TopicSpec) -> PlaceReader:
        fetcher = KafkaPlaceReader(settings, spec, client_id="conformance")
        opened.append(fetcher)
        return fetcher

    def expire(topic: str, partition: int, before: int) -> None:
        upto = TopicPartition(topic_name(settings, topic), partition, before)
        admin = admin_client(settings)
        for done in admin.delete_records([upto]).values():
            done.result(timeout=20)

    def away() -> LogUnderTest:
        elsewhere = settings.model_copy(update={"bootstrap": f"127.0.0.1:{free_port()}"})
        return _kafka(elsewhere, opened, delivery_timeout_ms=500)

    return LogUnderTest(
        publisher=lambda: KafkaPublisher(
            settings, client_id="conformance", delivery_timeout_ms=delivery_timeout_ms
        ),
        reader=reader,
        places=places,
        expire=expire,
        away=away,
    )


@pytest.fixture(params=["memory", "embedded", pytest.param("apache", marks=pytest.mark.apache)])
def log(request: pytest.FixtureRequest) -> Iterator[LogUnderTest]:
    if request.param == "memory":
        yield _memory(request.getfixturevalue("memory_log"))
        return
    settings = request.getfixturevalue(f"{request.param}_kafka")
    ensure_topics(settings)
    opened: list[KafkaReader | KafkaPlaceReader] = []
    yield _kafka(settings, opened)
    for reader in opened:
        reader.close()


def _record(key: str | None, value: bytes | str, **fields: object) -> OutRecord:
    raw = value.encode() if isinstance(value, str) else value
    record = OutRecord(topic=TRAJECTORY_EVENTS.name, key=key.encode() if key is not None else None, value=raw)
    return replace(record, **fields)  # type: ignore[arg-type]


async def _publish(log: LogUnderTest, *records: OutRecord) -> list[Place]:
    publisher = log.publisher()
    places = await asyncio.gather(*(publisher.publish(record) for record in records))
    await publisher.close()
    assert all(places)
    return [place for place in places if place]


def _read(reader: LogReader, count: int, *, timeout_s: float = 30.0) -> list[Record]:
    """`count` records, and then no more."""
    records: list[Record] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < deadline:
        records += reader.poll(timeout_s=0.5)
    assert len(records) == count
    assert reader.poll(timeout_s=0.5) == []
    return records


async def test_records_are_read_in_the_order_they_were_published_per_partition(log: LogUnderTest) -> None:
    sent = [_record(f"prompt-{i % 7}", str(i)) for i in range(100)]
    places = await _publish(log, *sent)
    records = _read(log.reader("g"), 100)
    assert {(r.partition, r.offset): r.value for r in records} == {
        (place.partition, place.offset): record.value for place, record in zip(places, sent, strict=True)
    }
    for _, group in groupby(sorted(records, key=lambda r: r.partition), key=lambda r: r.partition):
        numbers = [(r.offset, int(r.value or b"")) for r in group]
        assert numbers == sorted(numbers)
        assert [offset for offset, _ in numbers] == list(range(len(numbers)))


async def test_keys_land_where_the_contract_says(log: LogUnderTest) -> None:
    keys = [uuid.uuid4().hex for _ in range(30)] + ["", "ü/🎲", "a", "ab", "abc", "abcd"]
    places = await _publish(log, *(_record(key, "x") for key in keys))
    assert [place.partition for place in places] == [partition_of(key.encode(), PARTITIONS) for key in keys]


async def test_an_explicit_partition_wins_over_the_key(log: LogUnderTest) -> None:
    places = await _publish(log, *(_record(None, "x", partition=p) for p in (3, 0, 2)))
    assert [place.partition for place in places] == [3, 0, 2]
    key = next(k for k in map(str, range(100)) if partition_of(k.encode(), PARTITIONS) != 1)
    (place,) = await _publish(log, _record(key, "x", partition=1))
    assert place.partition == 1


async def test_key_value_headers_and_time_are_kept(log: LogUnderTest) -> None:
    headers = (
        ("type", b"step_captured"),
        ("twice", b"1"),
        ("twice", b"2"),
        ("raw", b"\x00\xff"),
        ("empty", b""),
    )
    before = time.time_ns() // 1_000_000
    (place,) = await _publish(log, _record("k", b"\x00\x01value", headers=headers))
    (record,) = _read(log.reader("g"), 1)
    assert (record.key, record.value, record.headers) == (b"k", b"\x00\x01value", headers)
    assert record.place == place
    assert record.topic == TRAJECTORY_EVENTS.name
    assert before <= record.timestamp_ms <= time.time_ns() // 1_000_000


async def test_a_twelve_megabyte_message_is_carried(log: LogUnderTest) -> None:
    value = os.urandom(12 * MB)
    (place,) = await _publish(log, _record("k", value))
    (record,) = _read(log.reader("g"), 1)
    assert record.value == value
    found = log.places(TRAJECTORY_EVENTS).fetch([place])
    assert found[place.partition, place.offset].value == value


async def test_a_message_over_the_topics_limit_is_the_callers_fault(log: LogUnderTest) -> None:
    publisher = log.publisher()
    with pytest.raises(InvalidInput) as caught:
        await publisher.publish(_record("k", os.urandom(TRAJECTORY_EVENTS.max_message_bytes + MB)))
    assert caught.value.status == 413
    assert await publisher.publish(_record("k", "small"))
    await publisher.close()


async def test_a_committed_group_resumes_after_what_it_read(log: LogUnderTest) -> None:
    await _publish(log, *(_record(str(i), str(i)) for i in range(20)))
    reader = log.reader("g")
    _read(reader, 20)
    reader.commit()
    reader.close()
    await _publish(log, *(_record(str(i), "later") for i in range(5)))
    again = log.reader("g")
    assert {record.value for record in _read(again, 5)} == {b"later"}


async def test_what_was_not_committed_is_read_again(log: LogUnderTest) -> None:
    await _publish(log, *(_record(str(i), "first") for i in range(10)))
    reader = log.reader("g")
    _read(reader, 10)
    reader.commit()
    await _publish(log, *(_record(str(i), "second") for i in range(10)))
    _read(reader, 10)
    reader.close()
    assert {record.value for record in _read(log.reader("g"), 10)} == {b"second"}


async def test_groups_read_independently(log: LogUnderTest) -> None:
    await _publish(log, *(_record(str(i), str(i)) for i in range(10)))
    one = log.reader("one")
    _read(one, 10)
    one.commit()
    assert len(_read(log.reader("two"), 10)) == 10


async def test_poll_gives_no_more_than_asked_for(log: LogUnderTest) -> None:
    await _publish(log, *(_record(str(i), str(i)) for i in range(10)))
    reader = log.reader("g")
    sizes: list[int] = []
    deadline = time.monotonic() + 30
    while sum(sizes) < 10 and time.monotonic() < deadline:
        sizes.append(len(reader.poll(max_records=3, timeout_s=0.5)))
    assert sum(sizes) == 10
    assert max(sizes) <= 3


async def test_records_are_fetched_by_place_and_absent_ones_left_out(log: LogUnderTest) -> None:
    places = await _publish(log, *(_record(None, str(i), partition=i % 2) for i in range(300)))
    wanted = [places[i] for i in (299, 0, 7, 8, 9, 250, 7)]
    beyond = Place(topic=TRAJECTORY_EVENTS.name, partition=0, offset=10_000)
    empty = Place(topic=TRAJECTORY_EVENTS.name, partition=3, offset=0)
    reader = log.places(TRAJECTORY_EVENTS)
    found = reader.fetch([*wanted, beyond, empty])
    assert {at: record.value for at, record in found.items()} == {
        (places[i].partition, places[i].offset): str(i).encode() for i in (0, 7, 8, 9, 250, 299)
    }
    assert reader.fetch([]) == {}
    assert reader.fetch([places[5]])[places[5].partition, places[5].offset].value == b"5"


async def test_expired_places_are_absent(log: LogUnderTest) -> None:
    places = await _publish(log, *(_record(None, str(i), partition=2) for i in range(50)))
    log.expire(TRAJECTORY_EVENTS.name, 2, 30)
    found = log.places(TRAJECTORY_EVENTS).fetch([places[10], places[29], places[30], places[49]])
    assert sorted(found) == [(2, 30), (2, 49)]
    assert [record.offset for record in _read(log.reader("g"), 20)] == list(range(30, 50))


async def test_other_topics_are_not_read(log: LogUnderTest) -> None:
    await _publish(log, replace(_record("k", "x"), topic=TRAJECTORIES.name), _record("k", "mine"))
    assert [record.value for record in _read(log.reader("g"), 1)] == [b"mine"]


async def test_publishing_while_the_broker_is_away_is_unavailable(log: LogUnderTest) -> None:
    away = log.away()
    publisher = away.publisher()
    with pytest.raises(Unavailable):
        await publisher.publish(_record("k", "x"))
    await publisher.close()


async def test_reading_while_the_broker_is_away_gives_nothing_and_fetching_is_unavailable(
    log: LogUnderTest,
) -> None:
    away = log.away()
    assert away.reader("g").poll(timeout_s=0.5) == []
    place = Place(topic=TRAJECTORY_EVENTS.name, partition=0, offset=0)
    with pytest.raises(Unavailable):
        away.places(TRAJECTORY_EVENTS).fetch([place], timeout_s=1.0)


def test_ensuring_topics_twice_changes_nothing(kafka: KafkaSettings) -> None:
    ensure_topics(kafka)
    before = admin_client(kafka).list_topics(timeout=20).topics
    ensure_topics(kafka.model_copy(update={"partitions": 2}))
    after = admin_client(kafka).list_topics(timeout=20).topics
    mine = {name for name in after if name.startswith(kafka.topic_prefix)}
    expected = {spec.name for spec in ALL_TOPICS} | {s.dlq_name for s in ALL_TOPICS if s.dead_letters}
    assert mine == {topic_name(kafka, name) for name in expected}
    assert {name: len(after[name].partitions) for name in mine} == dict.fromkeys(mine, PARTITIONS)
    assert {name for name in before if name.startswith(kafka.topic_prefix)} == mine


def test_ensuring_topics_without_a_broker_is_unavailable_and_says_what_to_check() -> None:
    settings = KafkaSettings(bootstrap=f"127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match="AGENTWORLD_KAFKA_BOOTSTRAP"):
        ensure_topics(settings, timeout_s=0.1)


async def test_two_readers_of_a_group_share_the_partitions(kafka: KafkaSettings) -> None:
    ensure_topics(kafka)
    opened: list[KafkaReader | KafkaPlaceReader] = []
    log = _kafka(kafka, opened)
    first, second = log.reader("g"), log.reader("g")
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    deadline = time.monotonic() + 60
    round_number = 0
    while not (seen[0] and seen[1]) and time.monotonic() < deadline:
        seen = {0: set(), 1: set()}
        await _publish(log, *(_record(None, str(round_number), partition=p) for p in range(PARTITIONS)))
        for _ in range(4):
            for index, reader in enumerate((first, second)):
                seen[index] |= {
                    r.partition for r in reader.poll(timeout_s=0.2) if r.value == b"%d" % round_number
                }
                reader.commit()
        round_number += 1
    assert seen[0] | seen[1] == set(range(PARTITIONS))
    assert seen[0].isdisjoint(seen[1])
    for member in opened:
        member.close()
