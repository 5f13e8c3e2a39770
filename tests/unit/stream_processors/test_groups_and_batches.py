"""How groups are decided and batches released, without a broker."""

from __future__ import annotations

import pytest

from agentworld.contract.events import (
    GroupExpired,
    GroupReady,
    GroupRejected,
    GroupRevised,
    TrajectorySealed,
)
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import GROUPS, TRAJECTORIES
from agentworld.platform.log import OutRecord
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import read


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_nth_seal_makes_a_group_ready_failed_ones_included(bench: Bench) -> None:
    a, b = rollout("p", 0), rollout("p", 1)
    bench.finish(a)
    assert bench.decisions() == []
    bench.feed(b.registered(), b.completed("failed"))
    bench.wait(1_000)
    [ready] = bench.decisions()
    assert isinstance(ready, GroupReady)
    assert [(m.trajectory_id, m.outcome, m.steps) for m in ready.members] == [
        ("p-0", "succeeded", 1),
        ("p-1", "failed", 0),
    ]
    for member in ready.members:
        [record] = bench.log.fetch([member.place]).values()
        [sealed] = read(TRAJECTORIES, [record])
        assert isinstance(sealed, TrajectorySealed)
        assert sealed.trajectory_id == member.trajectory_id


def test_a_straggler_delays_only_its_own_group(bench: Bench) -> None:
    bench.finish(rollout("slow", 0), rollout("p", 0), rollout("p", 1), rollout("q", 0), rollout("q", 1))
    [batch] = bench.batches()
    assert [group.prompt_id for group in batch.groups] == ["p", "q"]


def test_a_group_expires_with_its_reason_and_late_members_are_not_silent(bench: Bench) -> None:
    bench.finish(rollout("p", 0, n=3))
    bench.wait(35_000)
    [expired] = bench.decisions()
    assert isinstance(expired, GroupExpired)
    assert "1 of 3" in expired.reason
    bench.finish(rollout("p", 1, n=3))
    revised = bench.decisions()[-1]
    assert isinstance(revised, GroupRevised)
    assert (revised.version, revised.reason, len(revised.members)) == (2, "late_trajectory", 2)
    assert bench.batches() == []


def test_a_surplus_trajectory_is_named_and_not_trained_on(bench: Bench) -> None:
    bench.finish(*(rollout("p", index) for index in range(3)))
    ready, revised = bench.decisions()
    assert (revised.reason, revised.details["trajectory_id"]) == ("surplus_trajectory", "p-2")
    assert revised.members == ready.members
    bench.finish(rollout("p", 2))
    assert len(bench.decisions()) == 2


def test_the_first_n_counts_and_the_conflict_is_noted(bench: Bench) -> None:
    bench.finish(rollout("p", 0, n=2), rollout("p", 1, n=5))
    [ready] = bench.decisions()
    assert (ready.rollouts, ready.details["rollouts_conflicts"]) == (2, ["p-1"])


def test_a_late_reward_reaches_the_batch_that_is_not_released_yet(bench: Bench) -> None:
    a, b = rollout("p", 0), rollout("p", 1)
    bench.finish(a, b, reward=None)
    bench.feed(a.reward(0.5))
    revised = bench.decisions()[-1]
    assert isinstance(revised, GroupRevised)
    assert (revised.reason, revised.details["previous_reward"], revised.details["reward"]) == (
        "reward_revised",
        None,
        0.5,
    )
    bench.finish(rollout("q", 0), rollout("q", 1))
    [batch] = bench.batches()
    assert [m.reward for m in batch.groups[0].members] == [0.5, None]
    assert batch.groups[0].version == 2
    bench.feed(b.reward(0.25))
    assert bench.decisions()[-1].version == 3
    assert len(bench.batches()) == 1


def test_a_reward_before_the_decision_updates_the_member_quietly(bench: Bench) -> None:
    a, b = rollout("p", 0), rollout("p", 1)
    bench.finish(a, reward=None)
    bench.feed(a.reward(0.5))
    bench.finish(b)
    [ready] = bench.decisions()
    assert [m.reward for m in ready.members] == [0.5, 1.0]


def test_runs_and_channels_are_batched_apart_and_numbered_in_order(bench: Bench) -> None:
    for round_ in range(2):
        for channel in ("train", "val"):
            for prompt in "abc"[: 2 + round_]:
                name = f"{channel}-{round_}-{prompt}"
                bench.finish(*(rollout(name, i, channel=channel, run_id="r") for i in range(2)))
    batches = [(b.channel, b.sequence, [g.prompt_id for g in b.groups]) for b in bench.batches()]
    assert sorted(batches) == [
        ("train", 0, ["train-0-a", "train-0-b"]),
        ("train", 1, ["train-1-a", "train-1-b"]),
        ("val", 0, ["val-0-a", "val-0-b"]),
        ("val", 1, ["val-1-a", "val-1-b"]),
    ]


def test_a_waiting_group_is_released_short_after_the_linger() -> None:
    bench = Bench(batch_linger_ms=5_000)
    bench.finish(rollout("p", 0), rollout("p", 1))
    bench.wait(3_000)
    assert bench.batches() == []
    bench.wait(5_000)
    [batch] = bench.batches()
    assert (batch.reason, len(batch.groups), batch.trajectories) == ("linger", 1, 2)
    assert bench.pipeline.open_counts()["batch"] == 0


def test_a_rejected_group_leaves_the_queue(bench: Bench) -> None:
    bench.finish(rollout("p", 0), rollout("p", 1))
    [ready] = bench.decisions()
    rejected = GroupRejected(
        **{name: getattr(ready, name) for name in ready.__struct_fields__}
        | {"version": 2, "event_id": derived_id("x"), "reason": "no", "decided_by": "person"}
    )
    bench.log.append(OutRecord.of(GROUPS, rejected))
    bench.finish(rollout("q", 0), rollout("q", 1), rollout("r", 0), rollout("r", 1))
    [batch] = bench.batches()
    assert [group.prompt_id for group in batch.groups] == ["q", "r"]


def test_redelivered_decisions_batch_nothing_twice(bench: Bench) -> None:
    bench.finish(rollout("p", 0), rollout("p", 1))
    for record in bench.log.records(GROUPS.name):
        bench.log.append(OutRecord(topic=record.topic, key=record.key, value=record.value or b""))
    bench.pipeline.run()
    assert bench.batches() == []
    bench.finish(rollout("q", 0), rollout("q", 1))
    for record in bench.log.records(GROUPS.name):
        bench.log.append(OutRecord(topic=record.topic, key=record.key, value=record.value or b""))
    bench.pipeline.run()
    assert len(bench.batches()) == 1
