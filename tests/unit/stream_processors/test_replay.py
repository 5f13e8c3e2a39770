"""A run's log, decided again: the same under equal rules, other under other ones, and written once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentworld.contract.codec import encode
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import BatchReady, Event, GroupDecision, Place, TrajectorySealed
from agentworld.contract.topics import ALL_TOPICS, GROUPS, READY_BATCHES, TRAJECTORIES, TopicSpec
from agentworld.platform.log import OutRecord
from stream_processors.replay.job import Job, Outcome, ReplayRules, replay
from stream_processors.replay.selection import Selection, parse_offsets
from tests.support.rules import rules as limits
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import read


class LogPublisher:
    """Writes to the in-memory log."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def publish(self, record: OutRecord) -> Place:
        return self._bench.log.append(record)

    async def close(self) -> None:
        return None


def collected() -> Bench:
    """A run of six groups with rewards of two names, one group held back by a person."""
    bench = Bench(batch_groups=2)
    for number, prompt in enumerate("abcdef"):
        for index in range(2):
            one = rollout(prompt, index)
            bench.feed(one.reward(0.1 * number + index, name="judge"))
            bench.finish(one, reward=float((number + index) % 2))
    bench.give(rollout("f", 0), "reject")
    return bench


def run(
    bench: Bench, *, write: bool = False, into: str = "again", rules: Any = None, **asked: Any
) -> Outcome:
    def scan(spec: TopicSpec) -> list[Any]:
        return list(bench.log.records(spec.name))

    selection = {name: asked.pop(name) for name in list(asked) if name in Selection.__dataclass_fields__}
    sections = {name: asked.pop(name) for name in ("group", "reward", "batch") if name in asked}
    job = Job(selection=Selection(**({"run_id": "run"} | selection)), into=into, **asked)
    source = ReplayRules(rules or limits(grace_ms=0, batch_groups=2), **sections)
    return asyncio.run(replay(job, source, scan, LogPublisher(bench) if write else None))


def shape(batches: list[BatchReady]) -> list[list[tuple[str, list[float]]]]:
    return [
        [(g.prompt_id, sorted(m.reward or 0.0 for m in g.members)) for g in batch.groups] for batch in batches
    ]


def all_events(bench: Bench, spec: TopicSpec) -> list[Event]:
    return read(spec, bench.log.records(spec.name))


@pytest.mark.parametrize("assemble", [False, True])
def test_the_same_log_and_rules_give_byte_identical_batches(assemble: bool) -> None:
    bench = collected()
    first, second = run(bench, assemble=assemble), run(bench, assemble=assemble)
    assert first.digest == second.digest
    assert [encode(b) for b in first.replayed.batches] == [encode(b) for b in second.replayed.batches]
    assert all(batch.replay_of == "run" and batch.run_id == "again" for batch in first.replayed.batches)
    in_other_collection = run(collected(), assemble=assemble)
    assert in_other_collection.digest == first.digest


def test_what_was_complete_when_the_log_ends_is_sealed_whatever_the_grace() -> None:
    bench = collected()
    patient = limits(grace_ms=30_000, batch_groups=2)
    outcome = run(bench, assemble=True, rules=patient)
    assert outcome.replayed.trajectories == 12
    left = [prompt for batch in shape(outcome.replayed.batches) for prompt, _ in batch]
    assert len(left) == 4
    assert {d.prompt_id for d in outcome.replayed.decisions} == set("abcdef")


def test_a_replay_of_trajectories_refers_to_the_records_that_are_there() -> None:
    bench = collected()
    for batch in run(bench).replayed.batches:
        for group in batch.groups:
            for member in group.members:
                [record] = bench.log.fetch([member.place]).values()
                [sealed] = read(TRAJECTORIES, [record])
                assert isinstance(sealed, TrajectorySealed)
                assert sealed.trajectory_id == member.trajectory_id


@pytest.mark.parametrize("assemble", [False, True])
def test_a_dry_run_writes_nothing_and_a_real_one_writes_the_same_once(assemble: bool) -> None:
    bench = collected()
    before = {spec.name: len(bench.log.records(spec.name)) for spec in ALL_TOPICS}
    live = shape(bench.batches())
    dry = run(bench, assemble=assemble)
    assert {spec.name: len(bench.log.records(spec.name)) for spec in ALL_TOPICS} == before
    real = run(bench, assemble=assemble, write=True)
    again = run(bench, assemble=assemble, write=True)
    assert [b.batch_id for b in real.replayed.batches] == [b.batch_id for b in dry.replayed.batches]
    assert again.digest == real.digest
    assert again.written.new == 0
    assert again.written.known == real.written.new
    ours = [b for b in bench.batches() if b.run_id == "again"]
    assert [encode(b) for b in ours] == [encode(b) for b in real.replayed.batches]
    assert shape(ours)[:2] == live[:2]
    after_dry = run(bench, assemble=assemble)
    assert after_dry.digest == real.digest


def test_processors_pass_over_what_a_replay_wrote() -> None:
    bench = collected()
    decided = len(bench.decisions())
    outcome = run(bench, write=True, assemble=True)
    bench.pipeline.run()
    assert len(bench.decisions()) == decided + len(outcome.replayed.decisions)
    assert len([b for b in bench.batches() if b.run_id == "again"]) == len(outcome.replayed.batches)


def test_other_rules_decide_otherwise() -> None:
    bench = collected()
    assert shape(run(bench, reward={"names": ("judge",)}).replayed.batches)[0][0] == ("a", [0.0, 1.0])
    halved = run(bench, group={"rollouts": 1}).replayed
    assert {len(group.members) for batch in halved.batches for group in batch.groups} == {1}
    strict = limits(grace_ms=0, batch_groups=2, curation=[{"rule": "length", "max_steps": 0, "min_steps": 9}])
    rejected = run(bench, rules=strict).replayed
    assert rejected.batches == []
    assert {d.decided_by for d in rejected.decisions} == {"length", "ada"}


def test_a_persons_verdict_counts_again_unless_it_is_left_out() -> None:
    bench = collected()
    with_verdicts, without = run(bench).replayed, run(bench, verdicts=False).replayed
    assert "group_rejected" in {str(d.__struct_config__.tag) for d in with_verdicts.decisions}
    assert "group_rejected" not in {str(d.__struct_config__.tag) for d in without.decisions}
    assert len(run(bench, assemble=True).replayed.decisions) == len(with_verdicts.decisions)


def test_what_is_replayed_can_be_chosen_by_id_time_and_place() -> None:
    bench = collected()
    ids = frozenset(f"{prompt}-{index}" for prompt in "ab" for index in range(2))
    for assemble in (False, True):
        chosen = run(bench, assemble=assemble, trajectory_ids=ids).replayed
        assert [[g.prompt_id for g in b.groups] for b in chosen.batches] == [["a", "b"]]
        group = frozenset({rollout("c", 0).group_id})
        flushed = run(bench, assemble=assemble, group_ids=group, flush=True).replayed
        assert [[g.prompt_id for g in b.groups] for b in flushed.batches] == [["c"]]
        assert [batch.reason for batch in flushed.batches] == ["flush"]
    records = bench.log.records(TRAJECTORIES.name)
    first_seal = next(r for r in records if b"trajectory_sealed" in (r.value or b""))
    one = run(bench, offsets={first_seal.partition: (first_seal.offset, first_seal.offset + 1)})
    assert one.replayed.trajectories == 1
    times = [e.event_time_ms for e in all_events(bench, TRAJECTORIES) if isinstance(e, TrajectorySealed)]
    late = run(bench, since_ms=max(times)).replayed
    assert late.trajectories == times.count(max(times))
    assert run(bench, until_ms=max(times)).replayed.trajectories == 12 - times.count(max(times))


def test_a_run_that_is_in_use_is_not_written_to() -> None:
    bench = collected()
    with pytest.raises(InvalidInput, match="needs another name"):
        run(bench, into="run")
    bench.finish(*(rollout(p, i, run_id="live") for p in "xy" for i in range(2)))
    with pytest.raises(InvalidInput, match="batches of its own"):
        run(bench, into="live", write=True)
    run(bench, write=True)
    with pytest.raises(InvalidInput, match="other rules or data"):
        run(bench, write=True, reward={"names": ("judge",)})


def test_a_run_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match="no trajectory of run nobody"):
        run(collected(), run_id="nobody")


def test_offsets_are_written_as_spans_by_partition() -> None:
    assert parse_offsets("0:100-200, 1:50-") == {0: (100, 200), 1: (50, None)}
    with pytest.raises(InvalidInput, match="PARTITION:FIRST-END"):
        parse_offsets("7")


def test_decisions_of_a_replay_are_events_of_the_new_run() -> None:
    bench = collected()
    outcome = run(bench, write=True)
    ours = [e for e in all_events(bench, GROUPS) if isinstance(e, GroupDecision) and e.run_id == "again"]
    assert [encode(e) for e in ours] == [encode(e) for e in outcome.replayed.events]
    assert {e.group_id for e in ours}.isdisjoint(e.group_id for e in bench.decisions() if e.run_id == "run")
    assert READY_BATCHES.name in {r.topic for r in bench.log.records(READY_BATCHES.name)}
