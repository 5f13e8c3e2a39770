"""What becomes of groups that wait: deadlines, replacements, required rewards."""

from __future__ import annotations

from agentworld.contract.events import (
    GroupExpired,
    GroupPartial,
    GroupReady,
    GroupRevised,
    RolloutsConflicted,
    RolloutWanted,
)
from tests.unit.stream_processors.bench import Bench, rollout

REFILL = {"group_refill_outcomes": ["abandoned"], "group_max_refills": 2, "idle_timeout_ms": 5_000}


def kinds(bench: Bench) -> list[str]:
    return [type(decision).__name__ for decision in bench.decisions()]


def test_partial_releases_what_is_there_at_the_deadline_if_it_is_enough() -> None:
    bench = Bench(group_policy="partial", group_min_k=2, batch_groups=1)
    bench.finish(rollout("p", 0, n=3), rollout("p", 1, n=3), rollout("q", 0, n=3))
    bench.wait(40_000)
    by_prompt = {decision.prompt_id: decision for decision in bench.decisions()}
    partial, expired = by_prompt["p"], by_prompt["q"]
    assert isinstance(partial, GroupPartial)
    assert (partial.decided_by, len(partial.members)) == ("partial", 2)
    assert "2 of 3" in partial.reason
    assert isinstance(expired, GroupExpired)
    assert "1 of 3" in expired.reason
    assert [g.prompt_id for b in bench.batches() for g in b.groups] == ["p"]


def test_a_straggler_makes_a_partial_group_complete() -> None:
    bench = Bench(group_policy="partial", group_min_k=1, batch_groups=2)
    bench.finish(rollout("p", 0))
    bench.wait(40_000)
    bench.finish(rollout("p", 1))
    assert kinds(bench) == ["GroupPartial", "GroupReady"]
    assert [decision.version for decision in bench.decisions()] == [1, 2]
    bench.finish(rollout("q", 0), rollout("q", 1))
    [batch] = bench.batches()
    assert [(g.version, len(g.members)) for g in batch.groups] == [(2, 2), (1, 2)]


def test_drop_gives_an_incomplete_group_up() -> None:
    bench = Bench(group_policy="drop", batch_groups=1)
    bench.finish(rollout("p", 0))
    bench.wait(40_000)
    [expired] = bench.decisions()
    assert isinstance(expired, GroupExpired)
    assert expired.decided_by == "drop"
    assert bench.batches() == []


def test_wait_without_a_deadline_waits() -> None:
    bench = Bench(group_deadline_ms=0)
    bench.finish(rollout("p", 0))
    bench.wait(200_000)
    assert bench.decisions() == []
    bench.finish(rollout("p", 1))
    assert kinds(bench) == ["GroupReady"]


def test_an_abandoned_rollout_asks_for_another_and_its_replacement_completes_the_group() -> None:
    bench = Bench(**REFILL)
    lost, whole = rollout("p", 0), rollout("p", 1)
    bench.feed(lost.registered())
    bench.finish(whole)
    bench.wait(8_000)
    [wanted] = bench.events(RolloutWanted)
    assert (wanted.replaces_trajectory_id, wanted.attempt) == ("p-0", 1)
    assert wanted.reason.startswith("abandoned")
    assert bench.decisions() == []
    second = rollout("p", 2)
    bench.feed(second.registered(replaces_trajectory_id="p-0"), *second.whole(1)[1:])
    bench.wait(1_000)
    [ready] = bench.decisions()
    assert isinstance(ready, GroupReady)
    assert [member.trajectory_id for member in ready.members] == ["p-1", "p-2"]
    assert ready.details["replaced"] == ["p-0"]


def test_replacements_are_asked_for_as_often_as_allowed_and_then_the_failed_rollout_counts() -> None:
    bench = Bench(**(REFILL | {"group_max_refills": 1}))
    first, second = rollout("p", 0, n=1), rollout("p", 1, n=1)
    bench.feed(first.registered())
    bench.wait(8_000)
    bench.feed(second.registered(replaces_trajectory_id="p-0"))
    bench.wait(8_000)
    assert len(bench.events(RolloutWanted)) == 1
    [ready] = bench.decisions()
    assert [(m.trajectory_id, m.outcome) for m in ready.members] == [("p-1", "abandoned")]


def test_without_a_replacement_the_lost_rollout_counts_at_the_deadline() -> None:
    bench = Bench(**REFILL, group_policy="partial", group_min_k=2)
    bench.feed(rollout("p", 0).registered())
    bench.finish(rollout("p", 1))
    bench.wait(60_000)
    [partial] = bench.decisions()
    assert [(m.trajectory_id, m.outcome) for m in partial.members] == [
        ("p-0", "abandoned"),
        ("p-1", "succeeded"),
    ]


def test_a_conflict_of_n_is_an_event_and_the_first_one_wins() -> None:
    bench = Bench()
    bench.finish(rollout("p", 0, n=2), rollout("p", 1, n=5))
    [conflict] = bench.events(RolloutsConflicted)
    assert (conflict.trajectory_id, conflict.rollouts, conflict.conflicting_rollouts) == ("p-1", 2, 5)
    assert kinds(bench) == ["GroupReady"]


def test_a_run_that_requires_rewards_waits_for_them() -> None:
    bench = Bench(reward_required=True)
    a, b = rollout("p", 0), rollout("p", 1)
    bench.finish(a, b, reward=None)
    assert bench.decisions() == []
    bench.feed(a.reward(0.5))
    assert bench.decisions() == []
    bench.feed(b.reward(0.25))
    [ready] = bench.decisions()
    assert [member.reward for member in ready.members] == [0.5, 0.25]


def test_a_required_reward_that_does_not_come_is_met_by_the_policy() -> None:
    bench = Bench(reward_required=True, group_policy="partial", group_min_k=1)
    bench.finish(rollout("p", 0))
    bench.finish(rollout("p", 1), reward=None)
    bench.wait(40_000)
    [partial] = bench.decisions()
    assert [member.trajectory_id for member in partial.members] == ["p-0"]


def test_an_unfinished_rollout_needs_no_reward_and_gets_the_one_that_the_run_names() -> None:
    bench = Bench(reward_required=True, reward_unfinished=-1.0, idle_timeout_ms=5_000)
    bench.feed(rollout("p", 0).registered())
    bench.finish(rollout("p", 1))
    bench.wait(8_000)
    [ready] = bench.decisions()
    assert [member.reward for member in ready.members] == [-1.0, 1.0]


def test_the_first_named_reward_that_is_there_trains() -> None:
    bench = Bench(reward_names=["human", "judge"])
    a, b = rollout("p", 0), rollout("p", 1)
    bench.feed(a.reward(0.1, name="judge"), a.reward(0.9, name="human"), b.reward(0.2, name="judge"))
    bench.finish(a, b)
    [ready] = bench.decisions()
    assert [member.reward for member in ready.members] == [0.9, 0.2]
    bench.feed(b.reward(0.7, name="human"))
    revised = bench.decisions()[-1]
    assert isinstance(revised, GroupRevised)
    assert [member.reward for member in revised.members] == [0.9, 0.7]
