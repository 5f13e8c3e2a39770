"""Curation gates training: what rules, evaluators and people decide about complete groups."""

from __future__ import annotations

from typing import Any

from agentworld.contract.events import (
    GroupExpired,
    GroupHeld,
    GroupPartial,
    GroupReady,
    GroupRejected,
    GroupRevised,
)
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.log import OutRecord
from tests.support.trainer_words import published
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import Rollout

HOUR_MS = 3_600_000


def kinds(bench: Bench) -> list[str]:
    return [type(decision).__name__ for decision in bench.decisions()]


def batched(bench: Bench) -> list[str]:
    return [group.prompt_id for batch in bench.batches() for group in batch.groups]


def pair(prompt: str) -> list[Rollout]:
    return [rollout(prompt, 0), rollout(prompt, 1)]


def curated(*rules: dict[str, Any], **limits: Any) -> Bench:
    return Bench(curation=list(rules), batch_groups=1, **limits)


def publish(bench: Bench, version: int) -> None:
    """A new policy version, as it is repeated on every partition."""
    event = published(version, at_ms=bench.now_ms)
    for partition in range(2):
        bench.log.append(OutRecord.of(TRAJECTORIES, event, partition=partition))
    bench.pipeline.run()


def test_a_group_that_a_rule_rejects_never_reaches_a_batch() -> None:
    bench = curated({"rule": "zero_variance"})
    bench.finish(*pair("same"))
    bench.finish(rollout("mixed", 0), reward=1.0)
    bench.finish(rollout("mixed", 1), reward=0.0)
    rejected, ready = bench.decisions()
    assert isinstance(rejected, GroupRejected)
    assert (rejected.decided_by, rejected.details["lowest_reward"]) == ("zero_variance", 1.0)
    assert "zero_variance" in rejected.reason
    assert isinstance(ready, GroupReady)
    assert batched(bench) == ["mixed"]


def test_a_corrected_reward_can_release_what_a_rule_rejected() -> None:
    bench = curated({"rule": "zero_variance"})
    a, b = pair("p")
    bench.finish(a, b)
    assert batched(bench) == []
    bench.feed(b.reward(0.0, version=2))
    assert kinds(bench) == ["GroupRejected", "GroupReady"]
    assert [d.version for d in bench.decisions()] == [1, 2]
    assert batched(bench) == ["p"]


def test_rules_take_nothing_back_that_was_released() -> None:
    bench = curated({"rule": "zero_variance"})
    a, b = pair("p")
    bench.finish(a, reward=1.0)
    bench.finish(b, reward=0.0)
    bench.feed(b.reward(1.0, version=2))
    assert kinds(bench) == ["GroupReady", "GroupRevised"]


def test_a_held_group_waits_for_a_person_who_releases_it() -> None:
    bench = curated({"rule": "review"})
    a, b = pair("p")
    bench.finish(a, b)
    [held] = bench.decisions()
    assert isinstance(held, GroupHeld)
    bench.wait(HOUR_MS // 10)
    assert batched(bench) == []
    bench.give(a, "accept", reason="looks right")
    ready = bench.decisions()[-1]
    assert isinstance(ready, GroupReady)
    assert (ready.decided_by, ready.version, ready.reason) == ("ada", 2, "looks right")
    assert ready.details["given_by_kind"] == "person"
    assert batched(bench) == ["p"]


def test_a_held_group_that_a_person_rejects_is_never_batched() -> None:
    bench = curated({"rule": "review"})
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "reject")
    assert kinds(bench) == ["GroupHeld", "GroupRejected"]
    assert batched(bench) == []


def test_a_group_that_is_rejected_while_it_waits_for_its_batch_never_leaves() -> None:
    bench = Bench()
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "reject")
    bench.finish(*pair("q"), *pair("r"))
    assert batched(bench) == ["q", "r"]
    bench.give(a, "accept")
    bench.finish(*pair("s"))
    assert batched(bench) == ["q", "r", "p", "s"]
    assert [d.version for d in bench.decisions() if d.prompt_id == "p"] == [1, 2, 3]


def test_a_persons_verdict_wins_over_rules_and_evaluators_and_the_last_one_counts() -> None:
    bench = curated({"rule": "zero_variance"})
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "reject", given_by_kind="evaluator", given_by="judge")
    bench.give(a, "accept")
    assert kinds(bench) == ["GroupRejected", "GroupReady"]
    bench.give(a, "reject", given_by="bob")
    assert kinds(bench) == ["GroupRejected", "GroupReady", "GroupRejected"]
    assert bench.decisions()[-1].decided_by == "bob"


def test_a_verdict_that_is_delivered_again_or_out_of_order_changes_nothing() -> None:
    bench = curated({"rule": "review"})
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "accept")
    before = len(bench.decisions())
    for record in [r for r in bench.log.records(TRAJECTORIES.name) if b"verdict_given" in (r.value or b"")]:
        bench.log.append(OutRecord(topic=record.topic, key=record.key, value=record.value or b""))
    bench.pipeline.run()
    bench.give(a, "reject", event_time_ms=1)
    assert len(bench.decisions()) == before
    assert batched(bench) == ["p"]


def test_a_verdict_before_the_first_seal_waits_for_the_group() -> None:
    bench = Bench(batch_groups=1)
    a, b = pair("p")
    bench.give(a, "reject")
    bench.finish(a, b)
    assert kinds(bench) == ["GroupRejected"]
    assert batched(bench) == []


def test_a_verdict_on_a_group_that_never_comes_is_a_dead_letter() -> None:
    bench = Bench(closed_ttl_ms=10_000)
    bench.give(rollout("never", 0), "reject")
    bench.finish(rollout("p", 0, n=3), rollout("q", 0, n=3), rollout("s", 0, n=3))
    bench.wait(20_000)
    [letter] = bench.log.records(TRAJECTORIES.dlq_name)
    assert dict(letter.headers)["dlq-reason"] == b"unknown_group"


def test_an_evaluators_verdict_holds_back_what_rules_let_through() -> None:
    bench = Bench()
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "hold", given_by_kind="evaluator", given_by="judge", value={"score": 0.2})
    held = bench.decisions()[-1]
    assert isinstance(held, GroupHeld)
    assert (held.decided_by, held.details["score"]) == ("judge", 0.2)


def test_a_rejected_trajectory_is_left_out_and_named() -> None:
    bench = curated({"rule": "review"})
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "reject", trajectory_id="p-0", reason="cheats")
    bench.give(a, "accept")
    partial = bench.decisions()[-1]
    assert isinstance(partial, GroupPartial)
    assert [m.trajectory_id for m in partial.members] == ["p-1"]
    assert partial.details["excluded"]["p-0"]["reason"] == "cheats"
    [batch] = bench.batches()
    assert [m.trajectory_id for m in batch.groups[0].members] == ["p-1"]


def test_a_rule_on_trajectories_leaves_them_out_unless_a_person_keeps_them() -> None:
    rule = {"rule": "outcome", "outcomes": ["failed"], "on": "trajectory"}
    bench = curated(rule)
    a, b = pair("p")
    bench.finish(a)
    bench.feed(b.registered(), b.completed("failed"))
    bench.wait(1_000)
    [partial] = bench.decisions()
    assert [m.trajectory_id for m in partial.members] == ["p-0"]
    assert partial.details["excluded"]["p-1"]["rule"] == "outcome"
    bench.give(b, "accept", trajectory_id="p-1")
    ready = bench.decisions()[-1]
    assert [m.trajectory_id for m in ready.members] == ["p-0", "p-1"]


def test_a_group_of_which_nothing_is_left_is_rejected() -> None:
    bench = curated({"rule": "outcome", "outcomes": ["succeeded"], "on": "trajectory"})
    bench.finish(*pair("p"))
    [rejected] = bench.decisions()
    assert isinstance(rejected, GroupRejected)
    assert "no trajectory is left" in rejected.reason


def test_policy_lag_is_measured_when_the_group_is_complete_and_not_later() -> None:
    bench = curated({"rule": "policy_lag", "max_versions": 2})
    publish(bench, 5)
    a, b = pair("p")
    bench.finish(a, b)
    publish(bench, 6)
    bench.feed(a.reward(0.5, version=2))
    assert kinds(bench) == ["GroupReady", "GroupRevised"]
    bench.finish(*pair("q"))
    rejected = bench.decisions()[-1]
    assert isinstance(rejected, GroupRejected)
    assert (rejected.details["policy_lag"], rejected.details["newest_version"]) == (3, 6)


def test_a_person_can_release_a_group_that_expired() -> None:
    bench = Bench(batch_groups=1)
    bench.finish(rollout("p", 0))
    bench.wait(40_000)
    assert isinstance(bench.decisions()[-1], GroupExpired)
    bench.give(rollout("p", 0), "accept")
    assert isinstance(bench.decisions()[-1], GroupPartial)
    assert batched(bench) == ["p"]


def test_a_held_group_expires_when_nobody_says_anything() -> None:
    bench = curated({"rule": "review"}, group_hold_timeout_ms=20_000)
    bench.finish(*pair("p"))
    bench.finish(rollout("open", 0))
    bench.wait(25_000)
    assert kinds(bench) == ["GroupHeld", "GroupExpired"]
    assert "without a verdict" in bench.decisions()[-1].reason


def test_a_person_who_holds_an_accepted_group_makes_it_wait_again() -> None:
    bench = Bench()
    a, b = pair("p")
    bench.finish(a, b)
    bench.give(a, "hold")
    bench.finish(*pair("q"), *pair("r"))
    assert batched(bench) == ["q", "r"]


def test_the_prompt_of_an_earlier_round_is_a_duplicate() -> None:
    bench = curated({"rule": "duplicate_prompt"})
    bench.finish(*pair("p"))
    again = [rollout("p", index) for index in (2, 3)]
    for later in again:
        events = later.whole(1)
        events[0] = later.registered(round=1, group_id="second-round")
        bench.feed(*events)
        bench.wait(1_000)
    assert kinds(bench) == ["GroupReady", "GroupRejected"]
    assert bench.decisions()[-1].decided_by == "duplicate_prompt"


def test_decisions_survive_a_restart_anywhere() -> None:
    bench = curated({"rule": "review"})
    a, b = pair("p")
    bench.give(a, "accept", trajectory_id="p-1")
    bench.pipeline.commit()
    bench.pipeline.restart()
    bench.finish(a, b)
    bench.pipeline.commit()
    bench.pipeline.restart()
    bench.give(a, "accept")
    assert kinds(bench) == ["GroupHeld", "GroupReady"]
    bench.pipeline.restart()
    bench.pipeline.run()
    assert len({d.event_id for d in bench.decisions()}) == 2
    assert isinstance(bench.decisions()[0], GroupHeld)
    assert not [d for d in bench.decisions() if isinstance(d, GroupRevised)]
