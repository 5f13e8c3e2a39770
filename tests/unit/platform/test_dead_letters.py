"""Dead letters are listed, replayed as they were, and marked as replayed; over the in-memory log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from agentworld.contract.codec import encode
from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place, TrajectorySealed
from agentworld.contract.topics import (
    ALL_TOPICS,
    POLICY_VERSIONS,
    TRAJECTORIES,
    TRAJECTORY_DIRECTORY,
    TRAJECTORY_EVENTS,
    TopicSpec,
)
from agentworld.platform.dead_letter_reader import (
    LETTERED_TOPICS,
    DeadLetter,
    find_letters,
    lettered_topic,
    parse_place,
    read_letters,
)
from agentworld.platform.dead_letter_replay import Outcome, replay
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import OutRecord, Publisher, Record
from agentworld.platform.memory import InMemoryLog
from stream_processors.pipeline import Pipeline
from tests.support.builders import registered
from tests.support.rules import rules as limits
from tests.unit.stream_processors.rollouts import T0_MS, Rollout, read

EVENT = registered("t-1")
DLQ = TRAJECTORY_EVENTS.dlq_name


class MemoryLetters:
    """`LetterLog` over the fake, with the topics that are said to exist."""

    def __init__(self, log: InMemoryLog, specs: Iterable[TopicSpec] = ALL_TOPICS) -> None:
        self.log = log
        self.names = {spec.dlq_name for spec in specs}

    def dlq_names(self) -> set[str]:
        return self.names

    def scan(self, spec: TopicSpec) -> list[Record]:
        return self.log.records(spec.dlq_name)

    def fetch(self, spec: TopicSpec, places: Sequence[Place]) -> dict[tuple[int, int], Record]:
        assert {place.topic for place in places} == {spec.dlq_name}
        return self.log.fetch(places)


def bury(
    log: InMemoryLog, out: OutRecord, *, spec: TopicSpec = TRAJECTORY_EVENTS, reason: str = "malformed"
) -> Place:
    """Write a record and its dead letter; the letter's place."""
    place = log.append(out)
    record = log.fetch([place])[place.partition, place.offset]
    return log.append(dead_letter(record, reason=reason, detail="it [/was] so", consumer="test"))


def letters(log: InMemoryLog) -> list[DeadLetter]:
    return read_letters(MemoryLetters(log), LETTERED_TOPICS)


async def replayed(
    log: InMemoryLog,
    publisher: Publisher | None,
    *,
    again: bool = False,
    force: bool = False,
) -> list[Outcome]:
    found = replay(MemoryLetters(log), letters(log), publisher, again=again, force=force)
    return [outcome async for outcome in found]


class Flaky:
    """A publisher that refuses the records it is told to."""

    def __init__(self, log: InMemoryLog, *refused: str) -> None:
        self.log, self.refused = log, refused

    async def publish(self, record: OutRecord) -> Place | None:
        if record.topic in self.refused:
            raise Unavailable(f"{record.topic}: not acknowledged")
        return self.log.append(record)

    async def close(self) -> None:
        pass


def test_a_letter_says_where_it_stands_why_and_whose_event_it_is(memory_log: InMemoryLog) -> None:
    place = bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT), reason="step_after_seal")
    bare = memory_log.append(OutRecord(topic=DLQ, key=None, value=encode(EVENT), partition=place.partition))
    first, second = letters(memory_log)
    assert first.name == f"{DLQ}/{place.partition}@{place.offset}"
    assert (first.reason, first.consumer, first.detail) == ("step_after_seal", "test", "it [/was] so")
    assert first.origin == f"{TRAJECTORY_EVENTS.name}/{place.partition}@0"
    # Headers may be missing: then the value tells.
    for letter in (first, second):
        assert (letter.event_type, letter.trajectory_id) == ("trajectory_registered", "t-1")
        assert letter.prompt_id == EVENT.prompt_id
    assert (second.place, second.reason, second.origin) == (bare, "unknown", None)


@pytest.mark.parametrize("value", [b"", b"\xff\x00", b"{broken", b"[" * 100_000, b'{"a":' + b"[" * 100_000])
async def test_any_bytes_are_listed_and_refused_unless_forced(memory_log: InMemoryLog, value: bytes) -> None:
    bury(memory_log, OutRecord(topic=TRAJECTORY_EVENTS.name, key=b"k", value=value))
    [letter] = letters(memory_log)
    assert (letter.event_type, letter.value_bytes) == (None, len(value))
    [refused] = await replayed(memory_log, memory_log.publisher())
    assert refused.state == "refused"
    assert "--force" in refused.detail
    assert len(memory_log.records(TRAJECTORY_EVENTS.name)) == 1
    [forced] = await replayed(memory_log, memory_log.publisher(), force=True)
    assert forced.state == "replayed"
    assert [record.value for record in memory_log.records(TRAJECTORY_EVENTS.name)] == [value, value]


async def test_a_replay_repeats_key_value_and_headers_and_is_done_once(memory_log: InMemoryLog) -> None:
    place = bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT))
    [outcome] = await replayed(memory_log, memory_log.publisher())
    original, repeat = memory_log.records(TRAJECTORY_EVENTS.name)
    assert outcome.state == "replayed"
    assert (repeat.key, repeat.value, repeat.partition) == (original.key, original.value, original.partition)
    where = f"{DLQ}/{place.partition}@{place.offset}".encode()
    assert repeat.headers == (*original.headers, ("dlq-replayed-from", where))
    [letter] = letters(memory_log)
    assert letter.replayed is not None
    assert letter.replayed.to == f"{TRAJECTORY_EVENTS.name}/{repeat.partition}@{repeat.offset}"
    [second] = await replayed(memory_log, memory_log.publisher())
    assert (second.state, len(memory_log.records(TRAJECTORY_EVENTS.name))) == ("already_replayed", 2)
    [third] = await replayed(memory_log, memory_log.publisher(), again=True)
    assert (third.state, len(memory_log.records(TRAJECTORY_EVENTS.name))) == ("replayed", 3)


async def test_a_replayed_record_that_dies_again_is_a_new_letter_with_one_origin(
    memory_log: InMemoryLog,
) -> None:
    bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT))
    await replayed(memory_log, memory_log.publisher())
    repeat = memory_log.records(TRAJECTORY_EVENTS.name)[1]
    memory_log.append(dead_letter(repeat, reason="malformed", detail="", consumer="test"))
    first, second = letters(memory_log)
    assert first.replayed is not None
    assert second.replayed is None
    states = [outcome.state for outcome in await replayed(memory_log, memory_log.publisher())]
    assert states == ["already_replayed", "replayed"]
    headers = memory_log.records(TRAJECTORY_EVENTS.name)[2].headers
    assert [value for name, value in headers if name.startswith("dlq-")] == [second.name.encode()]


async def test_without_a_key_a_record_returns_to_its_partition(memory_log: InMemoryLog) -> None:
    bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT, partition=3))
    await replayed(memory_log, memory_log.publisher())
    assert [record.partition for record in memory_log.records(TRAJECTORY_EVENTS.name)] == [3, 3]


async def test_a_dry_run_writes_nothing_and_tells_what_would_be_refused(memory_log: InMemoryLog) -> None:
    bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT))
    bury(memory_log, OutRecord(topic=POLICY_VERSIONS.name, key=b"k", value=b"no"), spec=POLICY_VERSIONS)
    before = [len(memory_log.records(spec.name)) for spec in ALL_TOPICS]
    states = [outcome.state for outcome in await replayed(memory_log, None)]
    assert states == ["would_replay", "refused"]
    assert [len(memory_log.records(spec.name)) for spec in ALL_TOPICS] == before
    assert all(letter.replayed is None for letter in letters(memory_log))


async def test_what_the_broker_did_not_acknowledge_is_not_recorded_as_replayed(
    memory_log: InMemoryLog,
) -> None:
    bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT))
    [failed] = await replayed(memory_log, Flaky(memory_log, TRAJECTORY_EVENTS.name))
    assert failed.state == "failed"
    assert letters(memory_log)[0].replayed is None
    [unrecorded] = await replayed(memory_log, Flaky(memory_log, DLQ))
    assert unrecorded.state == "not_recorded"
    assert letters(memory_log)[0].replayed is None
    [done] = await replayed(memory_log, memory_log.publisher())
    assert done.state == "replayed"


async def test_a_letter_that_expired_before_it_was_fetched_is_refused(memory_log: InMemoryLog) -> None:
    place = bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT))
    seen = letters(memory_log)
    memory_log.expire(DLQ, place.partition, place.offset + 1)
    found = replay(MemoryLetters(memory_log), seen, memory_log.publisher())
    assert [(o.state, o.detail) async for o in found] == [("refused", "it expired meanwhile")]


async def test_many_letters_keep_their_order_within_a_partition(memory_log: InMemoryLog) -> None:
    events = [registered("t-1", rollouts=1 + n) for n in range(450)]
    for event in events:
        bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, event))
    await replayed(memory_log, memory_log.publisher())
    again = memory_log.records(TRAJECTORY_EVENTS.name)[len(events) :]
    assert read(TRAJECTORY_EVENTS, again) == events


def test_topics_that_do_not_exist_hold_no_letters(memory_log: InMemoryLog) -> None:
    assert read_letters(MemoryLetters(memory_log, []), LETTERED_TOPICS) == []


def test_unknown_topics_and_places_say_what_there_is(memory_log: InMemoryLog) -> None:
    assert lettered_topic(DLQ) is lettered_topic(TRAJECTORY_EVENTS.name) is TRAJECTORY_EVENTS
    assert parse_place("trajectories-dlq/3@17") == (
        TRAJECTORIES,
        Place(topic=TRAJECTORIES.dlq_name, partition=3, offset=17),
    )
    for name in ("nope", TRAJECTORY_DIRECTORY.name, TRAJECTORY_DIRECTORY.dlq_name):
        with pytest.raises(InvalidInput, match="those that have: trajectory-events, "):
            lettered_topic(name)
    for text in ("", "trajectory-events/0@1", f"{DLQ}/0", f"{DLQ}/-1@2", f"{DLQ}/x@2", "nope-dlq/0@1"):
        with pytest.raises(InvalidInput):
            parse_place(text)
    bury(memory_log, OutRecord.of(TRAJECTORY_EVENTS, EVENT))
    absent = Place(topic=DLQ, partition=0, offset=99)
    with pytest.raises(InvalidInput, match=f"{DLQ}/0@99"):
        find_letters(letters(memory_log), [letters(memory_log)[0].place, absent])


async def test_events_of_an_unknown_trajectory_seal_once_it_is_registered_and_they_are_replayed() -> None:
    log = InMemoryLog(partitions=1)
    pipeline = Pipeline(log, limits(grace_ms=1_000, idle_timeout_ms=20_000))
    now_ms = T0_MS

    def wait(log_ms: int) -> None:
        nonlocal now_ms
        for _ in range(0, log_ms, 1_000):
            now_ms += 1_000
            pipeline.tick(now_ms)

    rollout = Rollout("t", "p")
    for event in (*rollout.steps(2), rollout.completed()):
        log.append(OutRecord.of(TRAJECTORY_EVENTS, event))
    pipeline.run()
    wait(25_000)
    assert [letter.reason for letter in letters(log)] == ["unknown_trajectory"] * 3
    log.append(OutRecord.of(TRAJECTORY_EVENTS, rollout.registered()))
    assert [outcome.state for outcome in await replayed(log, log.publisher())] == ["replayed"] * 3
    pipeline.run()
    wait(3_000)
    [sealed] = [
        e for e in read(TRAJECTORIES, log.records(TRAJECTORIES.name)) if isinstance(e, TrajectorySealed)
    ]
    assert (sealed.outcome, len(sealed.steps)) == ("succeeded", 2)
    assert len(letters(log)) == 3
