"""Batches after crashes: state cut off at any write, records read again from any earlier place.

What a processor wrote before it died and what its successor writes must together be what one that
never died writes: equal bytes, so that nothing is in two batches and no batch has two contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.contract.codec import decode
from agentworld.contract.events import (
    BatchConsumed,
    BatchReady,
    Event,
    GroupHeld,
    GroupMember,
    GroupPartial,
    GroupReady,
    GroupRejected,
    GroupRevised,
    Place,
    PolicyPublished,
)
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import GROUPS, READY_BATCHES
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.memory import InMemoryLog
from stream_processors.batches.processor import BatchProcessor
from stream_processors.effects import Effects, StateKey, merge_writes
from stream_processors.pipeline import tick
from stream_processors.rules import Rules
from tests.support.rules import rules as limits
from tests.unit.stream_processors.rollouts import T0_MS

Written = tuple[str, bytes | None, bytes]
KINDS = (GroupReady, GroupReady, GroupReady, GroupPartial, GroupRevised, GroupRejected, GroupHeld)


def all_rules() -> st.SearchStrategy[Rules]:
    return st.fixed_dictionaries(
        {
            "batch_groups": st.integers(1, 3),
            "batch_linger_ms": st.sampled_from([0, 2_000]),
            "batch_order": st.sampled_from(["fifo", "freshest", "curriculum"]),
            "batch_max_policy_lag": st.sampled_from([-1, 0, 2]),
            "batch_max_unconsumed": st.integers(0, 2),
            "closed_ttl_ms": st.just(3_600_000),
        }
    ).map(lambda values: limits(**values))


class Script:
    """A log of `groups` as Hypothesis likes it; the trainer consumes batches that were released."""

    def __init__(self, rules: Rules) -> None:
        self.log = InMemoryLog(partitions=1)
        self.written: list[Written] = []
        self.now_ms = T0_MS
        self._processor = BatchProcessor(0, rules)
        self._versions: dict[str, int] = {}
        self._policy_version = 0
        self._batches: list[BatchReady] = []

    @property
    def records(self) -> list[Record]:
        return self.log.records(GROUPS.name)

    def add(self, kind: str, name: str, number: int) -> None:
        self.now_ms += 300
        match kind:
            case "tick":
                self.now_ms += 1_000
                self._append(tick(GROUPS, 0, self.now_ms))
            case "consume":
                batch_id = self._batches[number % len(self._batches)].batch_id if self._batches else "none"
                self._append(_out(consumed(batch_id, self.now_ms)))
            case "publish":
                self._policy_version += 1
                self._append(_out(published(self._policy_version, self.now_ms)))
            case "again":
                record = self.records[number % len(self.records)] if self.records else None
                if record is not None:
                    self._append(OutRecord(GROUPS.name, record.key, record.value or b"", partition=0))
            case _:
                version = self._versions[name] = self._versions.get(name, 0) + 1
                self._append(_out(decision(KINDS[number % len(KINDS)], name, version, number, self.now_ms)))

    def _append(self, record: OutRecord) -> None:
        self.log.append(record)
        outputs = self._processor.process(self.records[-1]).outputs
        self.written += [_written(output) for output in outputs]
        self._batches += [decode(READY_BATCHES, o.value) for o in outputs if o.topic == READY_BATCHES.name]


def _out(event: Event) -> OutRecord:
    return OutRecord.of(GROUPS, event, partition=0)


def _written(output: OutRecord) -> Written:
    return output.topic, output.key, output.value


def decision(kind: type[Any], name: str, version: int, number: int, now_ms: int) -> Any:
    run_id = "r" if name < "e" else "s"
    member = GroupMember(
        trajectory_id=f"{name}-0",
        place=Place(topic="trajectories", partition=0, offset=number),
        outcome="succeeded",
        reward=[None, 0.0, 1.0][number % 3],
        steps=1,
        prompt_tokens=1,
        response_tokens=1,
        policy_version_min=[None, 0, 1, 2][number % 4],
        policy_version_max=None,
        sealed_at_ms=T0_MS,
        clean=True,
    )
    return kind(
        event_id=derived_id("decision", name, version),
        event_time_ms=now_ms,
        source="test",
        group_id=name,
        run_id=run_id,
        channel="train",
        round=0,
        prompt_id=name,
        rollouts=1,
        version=version,
        members=[member],
        reason="",
        decided_by="wait",
        details={"given_by_kind": "person"} if number % 5 == 0 else {},
    )


def consumed(batch_id: str, now_ms: int, run_id: str = "r") -> BatchConsumed:
    return BatchConsumed(
        event_id=derived_id("consumed", batch_id),
        event_time_ms=now_ms,
        source="test",
        batch_id=batch_id,
        run_id=run_id,
        channel="train",
        consumer="verl",
        policy="default",
        policy_version=1,
    )


def published(version: int, now_ms: int) -> PolicyPublished:
    return PolicyPublished(
        event_id=derived_id("published", version),
        event_time_ms=now_ms,
        source="test",
        policy="default",
        version=version,
        weights_uri="file:///w",
        digest="sha256:0",
    )


def actions() -> st.SearchStrategy[list[tuple[str, str, int]]]:
    kinds = ["decide"] * 8 + ["consume", "consume", "publish", "tick", "tick", "again"]
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.sampled_from("abcdef"), st.integers(0, 1_000)),
        min_size=5,
        max_size=40,
    )


class Survivor:
    """A processor that dies at some write, and those that come after it."""

    def __init__(self, rules: Rules, records: Sequence[Record], data: st.DataObject) -> None:
        self._rules = rules
        self._records = records
        self._data = data
        self._stored: dict[StateKey, bytes] = {}
        self._committed = 0
        self.written: list[Written] = []

    def live_and_die(self) -> None:
        """Everything up to some record is sent; of the state, only what was written before the cut."""
        start = self._data.draw(st.integers(0, self._committed), label="reads from")
        processor = self._load()
        dies_at = self._data.draw(st.integers(start, len(self._records)), label="dies at")
        done = [(n, self._process(processor, self._records[n])) for n in range(start, dies_at)]
        chunks = self._chunks(done)
        if not chunks:
            return
        last = self._data.draw(st.integers(0, len(chunks) - 1), label="last chunk written")
        for chunk in chunks[:last]:
            self._apply(_merged(chunk))
        writes = _merged(chunks[last])
        self._apply(writes[: self._data.draw(st.integers(0, len(writes)), label="of its writes")])
        self._committed = max(self._committed, chunks[last][0][0])

    def live_on(self) -> None:
        start = self._data.draw(st.integers(0, self._committed), label="reads at last from")
        processor = self._load()
        for record in self._records[start:]:
            self._process(processor, record)

    def _process(self, processor: BatchProcessor, record: Record) -> Effects:
        effects = processor.process(record)
        self.written += [_written(output) for output in effects.outputs]
        return effects

    def _load(self) -> BatchProcessor:
        processor = BatchProcessor(0, self._rules)
        self._apply(list(processor.load(dict(self._stored)).writes.items()))
        return processor

    def _chunks(self, done: list[tuple[int, Effects]]) -> list[list[tuple[int, Effects]]]:
        """As the outbox takes them: any number of records, but none after a decisive one."""
        chunks: list[list[tuple[int, Effects]]] = []
        together = self._data.draw(st.integers(1, 12), label="records written together")
        for entry in done:
            full = chunks and (chunks[-1][-1][1].decisive or len(chunks[-1]) == together)
            if not chunks or full:
                chunks.append([])
            chunks[-1].append(entry)
        return chunks

    def _apply(self, writes: list[tuple[StateKey, bytes | None]]) -> None:
        for key, value in writes:
            # A changelog that is compacted keeps each key where it was written last.
            self._stored.pop(key, None)
            if value is not None:
                self._stored[key] = value


def _merged(chunk: list[tuple[int, Effects]]) -> list[tuple[StateKey, bytes | None]]:
    return merge_writes([write for _, effects in chunk for write in effects.writes.items()])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(all_rules(), actions(), st.data())
def test_what_is_written_around_crashes_is_what_one_that_never_died_writes(
    rules: Rules, steps: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    script = Script(rules)
    for kind, name, number in steps:
        script.add(kind, name, number)
    survivor = Survivor(rules, script.records, data)
    for _ in range(data.draw(st.integers(1, 2), label="crashes")):
        survivor.live_and_die()
    survivor.live_on()
    assert set(survivor.written) == set(script.written)
    batched = [
        (batch_group.group_id)
        for topic, _, value in set(survivor.written)
        if topic == READY_BATCHES.name
        for batch_group in decode(READY_BATCHES, value).groups
    ]
    assert len(batched) == len(set(batched))


def _decide(kind: type[Any], name: str, version: int, *, number: int = 1) -> Event:
    event: Event = decision(kind, name, version, number, T0_MS)
    return event


def _survived(
    rules: Rules, events: Sequence[Event], *, cut: int, later: Sequence[Event] = ()
) -> list[BatchReady]:
    """Batches of two processors: the first dies having made `cut` writes of its last record, the second
    reads everything again, and what came later."""
    log = InMemoryLog(partitions=1)
    for event in events:
        log.append(_out(event))
    records = log.records(GROUPS.name)
    first, stored = BatchProcessor(0, rules), dict[StateKey, bytes]()
    outputs: list[OutRecord] = []
    for record in records:
        effects = first.process(record)
        outputs += effects.outputs
        writes = merge_writes(effects.writes.items())
        for key, value in writes[: cut if record is records[-1] else None]:
            assert value is not None
            stored[key] = value
    second = BatchProcessor(0, rules)
    second.load(stored)
    for event in later:
        log.append(_out(event))
    for record in log.records(GROUPS.name):
        outputs += second.process(record).outputs
    batches = [
        decode(READY_BATCHES, output.value) for output in outputs if output.topic == READY_BATCHES.name
    ]
    return list({batch.batch_id: batch for batch in batches}.values())


@pytest.mark.parametrize("cut", range(5))
def test_a_group_that_came_back_and_left_at_once_is_in_one_batch(cut: int) -> None:
    events = [
        _decide(GroupReady, "a", 1),
        _decide(GroupRejected, "a", 2),
        _decide(GroupReady, "b", 1),
        _decide(GroupReady, "a", 3),
    ]
    later = [_decide(GroupReady, "c", 1), _decide(GroupReady, "d", 1)]
    batches = _survived(limits(batch_groups=2), events, cut=cut, later=later)
    assert [[group.group_id for group in batch.groups] for batch in batches] == [["b", "a"], ["c", "d"]]


@pytest.mark.parametrize("cut", range(6))
def test_the_batch_that_room_releases_is_the_same_after_a_crash(cut: int) -> None:
    rules = limits(batch_groups=1, batch_max_unconsumed=1, batch_max_policy_lag=0)
    events: list[Event] = [_decide(GroupReady, name, 1, number=1) for name in "abcd"]
    [first] = _survived(rules, events, cut=9)
    events += [
        published(1, T0_MS),
        _decide(GroupReady, "c", 2, number=5),  # a person's word: exempt from staleness
        consumed(first.batch_id, T0_MS),
    ]
    # A revision does not bring back a group that was found stale; only a new release does.
    revised = _decide(GroupRevised, "b", 2, number=5)
    [_, second] = _survived(rules, events, cut=cut)
    batches = _survived(rules, events, cut=cut, later=[revised, consumed(second.batch_id, T0_MS)])
    assert [[group.group_id for group in batch.groups] for batch in batches] == [["a"], ["c"]]


def test_what_is_stored_is_what_some_record_left_and_of_the_next_its_first_writes() -> None:
    """Else a successor would release by a mixture of older and newer entries."""
    processor = BatchProcessor(0, limits(batch_groups=8))
    for event in (_decide(GroupReady, "a", 1), published(1, T0_MS), _decide(GroupRejected, "a", 2)):
        log = InMemoryLog(partitions=1)
        log.append(_out(event))
        assert processor.process(log.records(GROUPS.name)[0]).decisive
