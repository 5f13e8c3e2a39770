"""Limits that seal a trajectory, steps that come after it, and what the seal says is missing."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.contract.events import Event, GroupRevised, TrajectoryRevised, TrajectorySealed
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import read


def trajectories(bench: Bench, kind: type[Event]) -> list[Any]:
    return [e for e in read(TRAJECTORIES, bench.log.records(TRAJECTORIES.name)) if isinstance(e, kind)]


def letters(bench: Bench) -> list[str]:
    return [
        dict(record.headers)["dlq-reason"].decode()
        for record in bench.log.records(TRAJECTORY_EVENTS.dlq_name)
    ]


def test_a_trajectory_is_sealed_once_it_has_sampled_its_tokens() -> None:
    bench = Bench(max_tokens=5)
    one = rollout("p", 0)
    bench.feed(one.registered(), *one.steps(4))  # two tokens a step
    [sealed] = trajectories(bench, TrajectorySealed)
    assert (sealed.seal_reason, sealed.outcome, len(sealed.steps)) == ("max_tokens", "errored", 3)
    assert "limit of 5 tokens" in sealed.outcome_reason
    assert letters(bench) == ["step_after_seal"]


def test_tokens_sampled_before_a_restart_count() -> None:
    bench = Bench(max_tokens=5)
    one = rollout("p", 0)
    first, second, third = one.steps(3)
    bench.feed(one.registered(), first, second)
    bench.pipeline.commit()
    bench.pipeline.restart()
    assert trajectories(bench, TrajectorySealed) == []
    bench.feed(third)
    [sealed] = trajectories(bench, TrajectorySealed)
    assert sealed.seal_reason == "max_tokens"


def test_steps_before_the_registration_count_once_it_is_there() -> None:
    bench = Bench(max_tokens=3)
    one = rollout("p", 0)
    bench.feed(*one.steps(2))
    assert trajectories(bench, TrajectorySealed) == []
    bench.feed(one.registered())
    assert len(trajectories(bench, TrajectorySealed)) == 1


def test_a_step_after_the_seal_marks_the_trajectory_and_its_group_once() -> None:
    bench = Bench()
    a, b = rollout("p", 0), rollout("p", 1)
    bench.finish(a, b)
    late = a.steps(3)[1:]
    bench.feed(late[0], late[0], late[1])
    bench.feed(a.reward(0.5, version=2), late[1])
    marks = trajectories(bench, TrajectoryRevised)
    assert [(m.revision, m.late_steps, m.reward) for m in marks] == [(1, 1, 1.0), (2, 2, 1.0), (3, 2, 0.5)]
    assert letters(bench) == ["step_after_seal"] * 2
    revised = [d for d in bench.decisions() if isinstance(d, GroupRevised)]
    assert [d.reason for d in revised] == ["late_step", "late_step", "reward_revised"]


def test_a_group_with_late_steps_can_be_rejected_by_the_rule_on_gaps() -> None:
    bench = Bench(curation=[{"rule": "gaps"}], batch_groups=1)
    a, b = rollout("p", 0), rollout("p", 1)
    bench.finish(a)
    bench.feed(a.steps(2)[1])
    bench.finish(b)
    [rejected] = bench.decisions()
    assert (rejected.decided_by, rejected.details["gaps"]) == ("gaps", {"late": 1})
    assert bench.batches() == []


def test_the_seal_counts_what_is_missing_by_kind() -> None:
    bench = Bench()
    one = rollout("p", 0)
    steps = one.steps(5)
    replace = msgspec.structs.replace
    steps[1] = replace(steps[1], status="cancelled")
    steps[2] = replace(steps[2], finish_reason="length")
    steps[3] = replace(steps[3], status="failed", finish_reason=None)
    lost = replace(steps[4], prompt=replace(steps[4].prompt, base_step_id="never-captured"))
    bench.feed(one.registered(), *steps[:4], lost, one.completed())
    bench.wait(2_000)
    [sealed] = trajectories(bench, TrajectorySealed)
    assert sealed.integrity.gaps == {"cancelled": 1, "failed": 1, "missing_base": 1, "truncated": 1}
    assert sealed.integrity.steps_not_ok == 2
    assert not sealed.integrity.clean


def test_a_truncated_response_alone_leaves_the_trajectory_clean() -> None:
    bench = Bench()
    one = rollout("p", 0)
    [step] = one.steps(1)
    bench.feed(one.registered(), msgspec.structs.replace(step, finish_reason="length"), one.completed())
    bench.wait(2_000)
    [sealed] = trajectories(bench, TrajectorySealed)
    assert sealed.integrity.gaps == {"truncated": 1}
    assert sealed.integrity.clean


def test_a_verdict_is_repeated_where_groups_are_decided() -> None:
    bench = Bench()
    one = rollout("p", 0)
    bench.give(one, "reject")
    given = bench.log.records(TRAJECTORY_EVENTS.name)[0]
    [repeated] = bench.log.records(TRAJECTORIES.name)
    assert (repeated.key, repeated.value) == (given.key, given.value)
    assert OutRecord.of(TRAJECTORIES, read(TRAJECTORIES, [repeated])[0]).headers == repeated.headers


def test_what_two_spools_held_during_an_outage_is_one_trajectory_whatever_times_it_carries() -> None:
    """One gateway's spool drains to its end, the completion included, before the other's begins."""
    bench = Bench(grace_ms=2_000)
    one = rollout("p", 0)
    first, second, third = one.steps(3)
    bench.feed(one.registered(), first)
    bench.wait(1_000)
    before_ms, outage_ms = bench.now_ms, 60_000
    bench.feed(msgspec.structs.replace(one.completed(), event_time_ms=before_ms + 1_000))
    for index in range(1, 10):
        other = rollout("p", index, n=10).registered()
        bench.feed(msgspec.structs.replace(other, event_time_ms=before_ms + index * outage_ms // 9))
    bench.now_ms += outage_ms
    bench.pipeline.tick(bench.now_ms)
    bench.feed(second, third)
    bench.wait(5_000)
    [sealed] = trajectories(bench, TrajectorySealed)
    assert len(sealed.steps) == 3
    assert letters(bench) == []
