"""The processors' behaviour over the in-memory pipeline, the embedded broker and real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from agentworld.contract.events import (
    BatchConsumed,
    BatchReady,
    Event,
    GroupExpired,
    GroupHeld,
    GroupReady,
    GroupRejected,
    GroupRevised,
    PolicyPublished,
    TrajectoryRevised,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import (
    GROUPS,
    POLICY_VERSIONS,
    READY_BATCHES,
    TRAINING_EVENTS,
    TRAJECTORIES,
    TRAJECTORY_EVENTS,
    TopicSpec,
)
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.memory import InMemoryLog
from stream_processors.pipeline import Pipeline
from stream_processors.rule_book import RuleBook
from tests.support.rules import rules
from tests.support.trainer_words import consumed, published
from tests.unit.stream_processors.rollouts import Rollout, read
from tests.unit.stream_processors.running import KafkaPlane, now_ms

LIMITS: dict[str, Any] = {
    "grace_ms": 300,
    "idle_timeout_ms": 4_000,
    "group_deadline_ms": 5_000,
    "batch_groups": 2,
}


RULES = """
[[run]]
match = "curated-*"
[run.batch]
groups = 1
max_unconsumed = 1
[[run.curation]]
rule = "review"

[[run]]
match = "lagging"
[run.batch]
groups = 1
max_unconsumed = 1
max_policy_lag = 2
"""


class Plane(Protocol):
    """The processors at work over some log."""

    def publish(self, *events: Event) -> None: ...

    def publish_bytes(self, record: OutRecord) -> None: ...

    def until(self, spec: TopicSpec, kind: type[Event], count: int) -> list[Event]: ...

    def letters(self, spec: TopicSpec, count: int) -> list[Record]: ...

    def settle(self) -> None: ...

    def events(self, spec: TopicSpec) -> list[Event]: ...


class MemoryPlane:
    """The in-memory pipeline; log time passes as fast as it is asked for."""

    def __init__(self) -> None:
        self.log = InMemoryLog()
        self.pipeline = Pipeline(self.log, RuleBook.parse(RULES, rules(**LIMITS)))
        self.clock_ms = now_ms()

    def publish(self, *events: Event) -> None:
        for event in events:
            self.publish_bytes(OutRecord.of(TRAJECTORY_EVENTS, event))
        self.pipeline.run()

    def publish_bytes(self, record: OutRecord) -> None:
        self.log.append(record)
        self.pipeline.run()

    def _tick(self) -> None:
        self.clock_ms += 250
        self.pipeline.tick(self.clock_ms)

    def until(self, spec: TopicSpec, kind: type[Event], count: int) -> list[Event]:
        for _ in range(100):
            found = [event for event in self.events(spec) if isinstance(event, kind)]
            if len(found) >= count:
                break
            self._tick()
        return found

    def letters(self, spec: TopicSpec, count: int) -> list[Record]:
        for _ in range(100):
            if len(self.log.records(spec.dlq_name)) >= count:
                break
            self._tick()
        return self.log.records(spec.dlq_name)

    def settle(self) -> None:
        for _ in range(6):
            self._tick()

    def events(self, spec: TopicSpec) -> list[Event]:
        return read(spec, self.log.records(spec.name))


@pytest.fixture(params=["memory", "embedded", pytest.param("apache", marks=pytest.mark.apache)])
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plane]:
    if request.param == "memory":
        yield MemoryPlane()
        return
    book = tmp_path / "rules.toml"
    book.write_text(RULES)
    limits = LIMITS | {"rules_file": book}
    with KafkaPlane(request.getfixturevalue(f"{request.param}_kafka"), tmp_path, **limits) as kafka:
        kafka.start_worker()
        yield kafka


def _rollouts(prompt: str, n: int, size: int | None = None, *, run_id: str = "run") -> list[Rollout]:
    return [
        Rollout(f"{prompt}-{index}", prompt, rollouts=size or n, run_id=run_id, start_ms=now_ms() + index)
        for index in range(n)
    ]


def test_rollouts_become_groups_and_a_batch_with_stragglers_failures_and_duplicates(plane: Plane) -> None:
    """One pass through the life of a step: order, completeness, no head-of-line blocking."""
    slow, empty = _rollouts("slow", 2), _rollouts("empty", 2)
    plane.publish(*slow[0].whole(2), slow[1].registered())
    for rollout in _rollouts("good", 2):
        first, *others = rollout.steps(4)
        events = [rollout.registered(), *reversed(others), first, rollout.completed(), rollout.reward(0.5)]
        plane.publish(*events, *events)
    for rollout in empty:
        plane.publish(rollout.registered(), rollout.completed("failed"))
    [batch] = plane.until(READY_BATCHES, BatchReady, 1)
    assert isinstance(batch, BatchReady)
    assert {group.prompt_id for group in batch.groups} == {"good", "empty"}
    assert (batch.sequence, batch.reason, batch.trajectories, batch.steps) == (0, "full", 4, 8)
    for event in plane.until(TRAJECTORIES, TrajectorySealed, 5):
        assert isinstance(event, TrajectorySealed)
        if event.prompt_id == "good":
            assert [entry.relation for entry in event.steps] == ["root", "extends", "extends", "extends"]
            assert event.reward == 0.5
            assert event.integrity.clean
    # The straggler: its rollout goes idle, so its group resolves too.
    ready = plane.until(GROUPS, GroupReady, 3)
    [late] = [event for event in ready if isinstance(event, GroupReady) and event.prompt_id == "slow"]
    assert [member.outcome for member in late.members] == ["succeeded", "abandoned"]
    plane.settle()
    assert len([e for e in plane.events(TRAJECTORIES) if isinstance(e, TrajectorySealed)]) == 6
    assert len([e for e in plane.events(GROUPS) if isinstance(e, GroupReady)]) == 3


def test_what_cannot_be_used_is_dead_lettered_with_its_reason_and_late_rewards_revise(plane: Plane) -> None:
    poison = OutRecord(topic=TRAJECTORY_EVENTS.name, key=b"good", value=b"{broken")
    plane.publish_bytes(poison)
    good, other = _rollouts("good", 2)
    plane.publish(*good.whole(1, reward=None), Rollout(good.trajectory_id, "elsewhere").step(9))
    plane.publish(*other.whole(1, reward=None))
    plane.publish_bytes(poison)
    plane.until(GROUPS, GroupReady, 1)
    plane.publish(good.reward(0.75), good.step(7), good.step(7))
    rewarded, marked = plane.until(TRAJECTORIES, TrajectoryRevised, 2)
    assert isinstance(rewarded, TrajectoryRevised)
    assert isinstance(marked, TrajectoryRevised)
    assert (rewarded.reward, rewarded.late_steps) == (0.75, 0)
    assert (marked.reward, marked.late_steps) == (0.75, 1)
    groups = plane.until(GROUPS, GroupRevised, 2)
    assert [e.reason for e in groups if isinstance(e, GroupRevised)] == ["reward_revised", "late_step"]
    newest = groups[-1]
    assert isinstance(newest, GroupRevised)
    assert sorted((m.reward or 0.0) for m in newest.members) == [0.0, 0.75]
    letters = plane.letters(TRAJECTORY_EVENTS, 4)
    reasons = sorted(dict(letter.headers)["dlq-reason"].decode() for letter in letters)
    # The foreign step lands in the other prompt's partition, or in the same one.
    assert reasons[:2] == ["malformed", "malformed"]
    assert reasons[2:] in (["prompt_mismatch", "step_after_seal"], ["step_after_seal", "unknown_trajectory"])
    assert [letter.value for letter in letters].count(b"{broken") == 2


def test_a_group_that_never_completes_expires(plane: Plane) -> None:
    [alone] = _rollouts("lonely", 1, size=4)
    plane.publish(*alone.whole(1))
    [expired] = plane.until(GROUPS, GroupExpired, 1)
    assert isinstance(expired, GroupExpired)
    assert "1 of 4" in expired.reason
    assert [member.trajectory_id for member in expired.members] == ["lonely-0"]


def _verdict(rollout: Rollout, decision: Any) -> VerdictGiven:
    return VerdictGiven(
        event_id=derived_id("verdict", rollout.group_id, decision),
        event_time_ms=now_ms(),
        source="console",
        prompt_id=rollout.prompt_id,
        group_id=rollout.group_id,
        decision=decision,
        given_by="ada",
    )


def _published(version: int) -> PolicyPublished:
    return published(version, at_ms=now_ms())


def _consumed(batch: BatchReady) -> BatchConsumed:
    return consumed(batch.batch_id, at_ms=now_ms(), run_id=batch.run_id, channel=batch.channel)


def test_what_people_and_the_trainer_say_decides_what_is_batched(plane: Plane) -> None:
    """Held until a person speaks; one batch at a time; what went stale meanwhile does not leave."""
    groups = {name: _rollouts(name, 1, run_id="curated-1")[0] for name in ("yes", "no", "behind", "stale")}
    for rollout in groups.values():
        plane.publish(*rollout.whole(1))
    held = plane.until(GROUPS, GroupHeld, 4)
    assert {event.decided_by for event in held if isinstance(event, GroupHeld)} == {"review"}
    plane.publish(_verdict(groups["yes"], "accept"), _verdict(groups["no"], "reject"))
    [first] = plane.until(READY_BATCHES, BatchReady, 1)
    assert isinstance(first, BatchReady)
    assert [group.prompt_id for group in first.groups] == ["yes"]
    [rejected] = plane.until(GROUPS, GroupRejected, 1)
    assert isinstance(rejected, GroupRejected)
    assert (rejected.prompt_id, rejected.decided_by) == ("no", "ada")
    plane.publish(_verdict(groups["behind"], "accept"))
    plane.until(GROUPS, GroupReady, 2)
    plane.settle()
    assert len([e for e in plane.events(READY_BATCHES) if isinstance(e, BatchReady)]) == 1
    plane.publish_bytes(OutRecord.of(TRAINING_EVENTS, _consumed(first)))
    _, second = plane.until(READY_BATCHES, BatchReady, 2)
    assert isinstance(second, BatchReady)
    assert [group.prompt_id for group in second.groups] == ["behind"]


def test_a_group_that_goes_stale_behind_the_trainer_is_rejected_and_not_batched(plane: Plane) -> None:
    uncurated = _rollouts("fresh", 1, run_id="run")[0]
    fresh, stale = (
        Rollout(f"{name}-0", name, rollouts=1, run_id="lagging", start_ms=now_ms()) for name in ("f", "s")
    )
    plane.publish(*uncurated.whole(1), *fresh.whole(1))
    [first] = plane.until(READY_BATCHES, BatchReady, 1)
    assert isinstance(first, BatchReady)
    plane.publish(*stale.whole(1))
    plane.until(GROUPS, GroupReady, 3)
    plane.publish_bytes(OutRecord.of(POLICY_VERSIONS, _published(9)))
    repeated = plane.until(GROUPS, PolicyPublished, 1)
    assert {e.version for e in repeated if isinstance(e, PolicyPublished)} == {9}
    plane.publish_bytes(OutRecord.of(TRAINING_EVENTS, _consumed(first)))
    [rejected] = plane.until(GROUPS, GroupRejected, 1)
    assert isinstance(rejected, GroupRejected)
    assert (rejected.prompt_id, rejected.decided_by, rejected.details["newest_version"]) == (
        "s",
        "staleness",
        9,
    )
    plane.settle()
    assert [e.run_id for e in plane.events(READY_BATCHES) if isinstance(e, BatchReady)] == ["lagging"]
