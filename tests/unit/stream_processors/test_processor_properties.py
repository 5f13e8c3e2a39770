"""Whatever the order, the duplicates and the crashes: the same trajectories, groups and batches."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.contract.events import (
    BatchConsumed,
    BatchReady,
    Event,
    GroupReady,
    PolicyPublished,
    TrajectorySealed,
)
from agentworld.contract.topics import (
    GROUPS,
    READY_BATCHES,
    TRAJECTORIES,
    TRAJECTORY_DIRECTORY,
    TRAJECTORY_EVENTS,
    TopicSpec,
)
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.memory import InMemoryLog
from stream_processors.effects import CLOCK_KEY, StateKey, merge_writes
from stream_processors.pipeline import Pipeline, tick
from stream_processors.processors import PROCESSORS
from stream_processors.rules import Rules
from tests.support.rules import rules as limits
from tests.support.trainer_words import consumed, published
from tests.unit.stream_processors.rollouts import T0_MS, Rollout, read
from tests.unit.stream_processors.test_trajectory_tree import busy_agent

Write = tuple[StateKey, bytes | None]

RULES = limits(grace_ms=1_000, batch_groups=2)
OUTPUT_TOPICS = (TRAJECTORIES, TRAJECTORY_DIRECTORY, GROUPS, READY_BATCHES)
EVENTS: list[Event] = [
    event
    for prompt in ("p", "q")
    for index in range(2)
    for event in Rollout(f"{prompt}{index}", prompt).whole(3, reward=index / 2)
]

relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def orders() -> st.SearchStrategy[list[Event]]:
    """Every event at least once, some twice, in any order."""
    return st.lists(st.sampled_from(EVENTS), max_size=6).flatmap(
        lambda again: st.permutations([*EVENTS, *again])
    )


def finish(pipeline: Pipeline) -> None:
    pipeline.run()
    for second in range(1, 6):
        pipeline.tick(T0_MS + 10_000 + 1_000 * second)


def run(events: list[Event]) -> InMemoryLog:
    log = InMemoryLog(partitions=2)
    pipeline = Pipeline(log, RULES)
    for event in events:
        log.append(OutRecord.of(TRAJECTORY_EVENTS, event))
    finish(pipeline)
    return log


def sealed(log: InMemoryLog) -> dict[str, bytes]:
    """What was sealed, without the time at which it was."""
    return {
        event.trajectory_id: msgspec.json.encode(msgspec.structs.replace(event, event_time_ms=0))
        for event in read(TRAJECTORIES, log.records(TRAJECTORIES.name))
        if isinstance(event, TrajectorySealed)
    }


def decided(log: InMemoryLog) -> dict[str, set[tuple[str, float | None, int]]]:
    """Members of the groups that are ready; a group decided twice would fail here."""
    ready = [e for e in read(GROUPS, log.records(GROUPS.name)) if isinstance(e, GroupReady)]
    assert len({event.group_id for event in ready}) == len(ready)
    return {e.prompt_id: {(m.trajectory_id, m.reward, m.steps) for m in e.members} for e in ready}


EXPECTED = run(EVENTS)
TREE = Rollout("t", "p", rollouts=1)
TREE_EVENTS: list[Event] = [TREE.registered(), *busy_agent().steps, TREE.completed()]


@relaxed
@given(orders())
def test_any_order_with_duplicates_seals_and_decides_the_same(events: list[Event]) -> None:
    log = run(events)
    assert sealed(log) == sealed(EXPECTED)
    assert decided(log) == decided(EXPECTED)
    [batch] = read(READY_BATCHES, log.records(READY_BATCHES.name))
    assert isinstance(batch, BatchReady)
    assert {group.prompt_id for group in batch.groups} == {"p", "q"}
    assert log.records(TRAJECTORY_EVENTS.dlq_name) == []


@relaxed
@given(
    st.lists(st.sampled_from(TREE_EVENTS), max_size=6).flatmap(
        lambda again: st.permutations([*TREE_EVENTS, *again])
    )
)
def test_any_order_with_duplicates_seals_a_tree_to_the_same_bytes(events: list[Event]) -> None:
    expected = sealed(run(TREE_EVENTS))
    assert b'"relation":"sub_agent"' in expected["t"]
    assert sealed(run(events)) == expected


@relaxed
@given(orders())
def test_the_same_log_gives_the_same_bytes(events: list[Event]) -> None:
    first, second = run(events), run(events)
    for spec in OUTPUT_TOPICS:
        assert [(r.partition, r.offset, r.key, r.value, r.headers) for r in first.records(spec.name)] == [
            (r.partition, r.offset, r.key, r.value, r.headers) for r in second.records(spec.name)
        ]


@relaxed
@given(orders(), st.data())
def test_crashes_between_commits_change_nothing_that_is_told_apart_by_id(
    events: list[Event], data: st.DataObject
) -> None:
    log = InMemoryLog(partitions=2)
    pipeline = Pipeline(log, RULES)
    for number, event in enumerate(events):
        log.append(OutRecord.of(TRAJECTORY_EVENTS, event))
        pipeline.run()
        match data.draw(st.sampled_from(["", "", "commit", "crash"]), label=f"after {number}"):
            case "commit":
                pipeline.commit()
            case "crash":
                pipeline.restart()
    finish(pipeline)
    pipeline.restart()
    finish(pipeline)
    assert sealed(log) == sealed(EXPECTED)
    assert decided(log) == decided(EXPECTED)
    batches = [e for e in read(READY_BATCHES, log.records(READY_BATCHES.name)) if isinstance(e, BatchReady)]
    assert len({batch.batch_id for batch in batches}) == 1


@relaxed
@given(orders(), st.data())
def test_state_writes_cut_off_anywhere_and_records_read_again_decide_the_same(
    events: list[Event], data: st.DataObject
) -> None:
    """As in a crash: outputs are durable, state only up to some write, offsets not at all."""
    source = InMemoryLog(partitions=1)
    for event in events:
        source.append(OutRecord.of(TRAJECTORY_EVENTS, event))
    inputs = source.records(TRAJECTORY_EVENTS.name)
    for name in PROCESSORS:
        inputs = _through_a_crash(name, inputs, data)
    batches = {
        event.batch_id: event for event in read(READY_BATCHES, inputs) if isinstance(event, BatchReady)
    }
    [batch] = batches.values()
    assert sorted(group.prompt_id for group in batch.groups) == ["p", "q"]
    assert all(len(group.members) == 2 for group in batch.groups)
    assert all(member.steps == 3 and member.clean for group in batch.groups for member in group.members)


@relaxed
@given(st.data())
def test_a_crash_under_back_pressure_and_staleness_batches_each_group_once(data: st.DataObject) -> None:
    rules = limits(batch_groups=2, batch_max_unconsumed=1, batch_max_policy_lag=2, batch_linger_ms=2_000)
    log = InMemoryLog(partitions=1)
    waiting = [Rollout(f"{name}0", name, rollouts=1) for name in "abcdefgh"]
    ready = run([event for one in waiting for event in one.whole(1)]).records(GROUPS.name)
    decisions = [event for event in read(GROUPS, ready) if isinstance(event, GroupReady)]
    taken_so_far = 0
    for event in (*decisions[:5], None, version(5), *decisions[5:7], None, version(9), None, decisions[7]):
        known = _batches(rules, log.records(GROUPS.name))
        if event is not None:
            log.append(OutRecord.of(GROUPS, event, partition=0))
        elif len(known) > taken_so_far:
            log.append(OutRecord.of(GROUPS, taken(known[taken_so_far]), partition=0))
            taken_so_far += 1
    expected = _batches(rules, log.records(GROUPS.name))
    assert len(expected) >= 3
    got = read(READY_BATCHES, _through_a_crash("batch", log.records(GROUPS.name), data, rules))
    assert {e.batch_id for e in got if isinstance(e, BatchReady)} == {e.batch_id for e in expected}
    groups = [group.group_id for batch in expected for group in batch.groups]
    assert len(groups) == len(set(groups))


def _batches(rules: Rules, records: list[Record]) -> list[BatchReady]:
    processor = PROCESSORS["batch"](0, rules)
    times = [T0_MS + 10_000 + 1_000 * second for second in range(1, 6)]
    outputs = [
        output
        for record in [*records, *_ticks(GROUPS, times)]
        for output in processor.process(record).outputs
        if output.topic == READY_BATCHES.name
    ]
    log = InMemoryLog(partitions=1)
    for output in outputs:
        log.append(output)
    return [e for e in read(READY_BATCHES, log.records(READY_BATCHES.name)) if isinstance(e, BatchReady)]


def version(number: int) -> PolicyPublished:
    return published(number, at_ms=T0_MS)


def taken(batch: BatchReady) -> BatchConsumed:
    return consumed(batch.batch_id, at_ms=T0_MS, run_id=batch.run_id, channel=batch.channel)


def _through_a_crash(
    name: str, inputs: list[Record], data: st.DataObject, rules: Rules = RULES
) -> list[Record]:
    """Outputs of one processor that dies once while writing state, as the next one reads them."""
    out = InMemoryLog(partitions=1)
    stored: dict[StateKey, bytes] = {}
    processor = PROCESSORS[name](0, rules)
    times = [T0_MS + 10_000 + 1_000 * second for second in range(1, 6)]
    records = [*inputs, *_ticks(processor.source, times)]
    at = data.draw(st.integers(0, len(records) - 1), label=f"{name} dies at")
    back = data.draw(st.integers(0, at), label=f"{name} resumes at")
    merged_from = data.draw(st.integers(back, at), label=f"{name} writes from")
    pending: list[Write] = []
    for index, record in enumerate(records[: at + 1]):
        effects = processor.process(record)
        for output in effects.outputs:
            out.append(output)
        pending += effects.writes.items()
        if (index < merged_from or effects.decisive) and index < at:
            _apply(stored, merge_writes(pending))
            pending = []
    writes = merge_writes(pending)
    _apply(stored, writes[: data.draw(st.integers(0, len(writes)), label=f"{name} writes cut at")])
    processor = PROCESSORS[name](0, rules)
    _apply(stored, list(processor.load(dict(stored)).writes.items()))
    for record in records[back:]:
        for output in processor.process(record).outputs:
            out.append(output)
    topic = {"trajectory": TRAJECTORIES, "group": GROUPS, "batch": READY_BATCHES}[name]
    return out.records(topic.name)


def _apply(stored: dict[StateKey, bytes], writes: list[Write]) -> None:
    for key, value in writes:
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = value


def _ticks(source: TopicSpec, times: list[int]) -> list[Record]:
    log = InMemoryLog(partitions=1)
    for time_ms in times:
        log.append(tick(source, 0, time_ms))
    return [replace(record, offset=1_000 + record.offset) for record in log.records(source.name)]


def test_merged_writes_keep_the_clock_last_and_removals_behind_what_stands_for_them() -> None:
    merged = merge_writes(
        [
            (("step", "t", "1"), b"s"),
            (CLOCK_KEY, b"1"),
            (("trajectory", "t"), b"closed"),
            (("step", "t", "1"), None),
            (CLOCK_KEY, b"2"),
            (("trajectory", "t"), b"revised"),
        ]
    )
    assert merged == [(("trajectory", "t"), b"revised"), (("step", "t", "1"), None), (CLOCK_KEY, b"2")]
