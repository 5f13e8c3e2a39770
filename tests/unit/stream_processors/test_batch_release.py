"""When and in which order groups leave for training: order, staleness, back-pressure."""

from __future__ import annotations

from typing import Any

import pytest

from agentworld.contract.events import (
    BatchReady,
    GroupRejected,
    VerdictGiven,
)
from agentworld.contract.topics import POLICY_VERSIONS, TRAINING_EVENTS, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord
from tests.support.trainer_words import consumed, published
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import read


class Trainer(Bench):
    """A bench with a trainer's words: versions and consumed batches."""

    def publish(self, version: int, policy: str = "default") -> None:
        event = published(version, at_ms=self.now_ms, policy=policy)
        self.log.append(OutRecord.of(POLICY_VERSIONS, event))
        self.pipeline.run()

    def consume(self, batch: BatchReady) -> None:
        event = consumed(batch.batch_id, at_ms=self.now_ms, run_id=batch.run_id, channel=batch.channel)
        self.log.append(OutRecord.of(TRAINING_EVENTS, event))
        self.pipeline.run()

    def groups(self, *prompts: str, reward: float | None = 1.0, **more: Any) -> None:
        for prompt in prompts:
            self.finish(*(rollout(prompt, index, **more) for index in range(2)), reward=reward)

    def left(self) -> list[list[str]]:
        return [[group.prompt_id for group in batch.groups] for batch in self.batches()]

    def verdicts(self) -> list[VerdictGiven]:
        events = read(TRAJECTORY_EVENTS, self.log.records(TRAJECTORY_EVENTS.name))
        return [event for event in events if isinstance(event, VerdictGiven)]


def test_at_most_k_batches_wait_for_the_trainer_and_the_next_leaves_when_one_is_taken() -> None:
    bench = Trainer(batch_groups=1, batch_max_unconsumed=2)
    bench.groups("a", "b", "c", "d")
    assert bench.left() == [["a"], ["b"]]
    first, second = bench.batches()
    bench.consume(first)
    assert bench.left() == [["a"], ["b"], ["c"]]
    bench.consume(first)
    assert len(bench.left()) == 3, "a batch that is reported twice makes room once"
    bench.consume(second)
    assert bench.left() == [["a"], ["b"], ["c"], ["d"]]


def test_groups_that_wait_behind_the_trainer_can_still_be_rejected() -> None:
    bench = Trainer(batch_groups=1, batch_max_unconsumed=1)
    bench.groups("a", "b", "c")
    bench.give(rollout("b", 0), "reject")
    bench.consume(bench.batches()[0])
    assert bench.left() == [["a"], ["c"]]


def test_channels_have_their_own_backlog() -> None:
    bench = Trainer(batch_groups=1, batch_max_unconsumed=1)
    bench.groups("a", "b")
    bench.groups("v", channel="val")
    assert bench.left() == [["a"], ["v"]]
    assert [batch.channel for batch in bench.batches()] == ["train", "val"]


def test_a_short_batch_that_was_due_leaves_once_there_is_room() -> None:
    bench = Trainer(batch_groups=2, batch_max_unconsumed=1, batch_linger_ms=3_000)
    bench.groups("a", "b", "c")
    bench.wait(10_000)
    assert bench.left() == [["a", "b"]]
    bench.consume(bench.batches()[0])
    assert bench.left() == [["a", "b"], ["c"]]
    assert bench.batches()[-1].reason == "linger"


def test_a_group_that_went_stale_is_rejected_when_its_batch_would_leave_and_others_fill_it() -> None:
    bench = Trainer(batch_groups=2, batch_max_policy_lag=2)
    bench.groups("old")  # sampled under version 3
    bench.publish(6)
    assert bench.left() == []
    bench.give(rollout("kept", 0), "accept", event_time_ms=1)
    bench.groups("kept", "also-kept")
    rejected = [d for d in bench.decisions() if isinstance(d, GroupRejected)]
    assert {d.prompt_id for d in rejected} == {"old", "also-kept"}
    assert {d.decided_by for d in rejected} == {"staleness"}
    assert rejected[0].details["policy_lag"] == 3
    assert bench.left() == []
    assert [v.given_by_kind for v in bench.verdicts() if v.decision == "reject"] == ["rule", "rule"]


def test_a_group_within_the_limit_leaves() -> None:
    bench = Trainer(batch_groups=1, batch_max_policy_lag=2)
    bench.publish(5)
    bench.groups("a")
    bench.publish(6, policy="another")
    assert bench.left() == [["a"]]
    assert bench.verdicts() == []


def test_a_person_releases_a_stale_group() -> None:
    bench = Trainer(batch_groups=1, batch_max_policy_lag=0)
    bench.publish(9)
    bench.groups("a")
    assert bench.left() == []
    bench.give(rollout("a", 0), "accept")
    assert bench.left() == [["a"]]
    assert len(bench.verdicts()) == 2


def test_the_newest_policy_goes_first() -> None:
    bench = Trainer(batch_groups=2, batch_max_unconsumed=1, batch_order="freshest")
    bench.groups("first", "second")
    for version, prompt in ((5, "v5"), (7, "v7"), (6, "v6")):
        for index in range(2):
            one = rollout(prompt, index)
            engine = {"engine": one.step(0).engine.__class__(engine="e", policy_version_start=version)}
            bench.feed(one.registered(), one.step(0, **engine), one.completed())
            bench.wait(1_000)
    bench.consume(bench.batches()[0])
    assert bench.left() == [["first", "second"], ["v7", "v6"]]


@pytest.mark.parametrize(("hardest", "expected"), [(False, ["easy", "middle"]), (True, ["hard", "middle"])])
def test_a_curriculum_goes_by_mean_reward(hardest: bool, expected: list[str]) -> None:
    bench = Trainer(
        batch_groups=2, batch_max_unconsumed=1, batch_order="curriculum", batch_hardest_first=hardest
    )
    bench.groups("x", "y")
    bench.groups("none", reward=None)
    bench.groups("hard", reward=0.1)
    bench.groups("easy", reward=0.9)
    bench.groups("middle", reward=0.5)
    bench.consume(bench.batches()[0])
    assert bench.left() == [["x", "y"], expected]


def test_a_batch_names_the_rules_that_made_it() -> None:
    bench = Trainer(batch_groups=1)
    bench.groups("a")
    [batch] = bench.batches()
    assert batch.details["rules"].startswith("sha256:")


def test_a_restart_anywhere_keeps_backlog_versions_and_order() -> None:
    bench = Trainer(batch_groups=1, batch_max_unconsumed=1, batch_max_policy_lag=3)
    bench.publish(5)
    bench.groups("a", "b")
    bench.pipeline.commit()
    bench.pipeline.restart()
    assert bench.left() == [["a"]]
    bench.publish(7)
    bench.pipeline.commit()
    bench.pipeline.restart()
    bench.consume(bench.batches()[0])
    assert bench.left() == [["a"]]
    assert bench.decisions()[-1].decided_by == "staleness"
