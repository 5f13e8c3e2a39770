"""The processors over an in-memory log, with a clock that tests move."""

from __future__ import annotations

from typing import Any

from agentworld.contract.events import BatchReady, Event, GroupDecision, VerdictGiven
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import GROUPS, READY_BATCHES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from stream_processors.pipeline import Pipeline
from tests.support.rules import rules as limits
from tests.unit.stream_processors.rollouts import T0_MS, Rollout, read


class Bench:
    def __init__(self, **rules: Any) -> None:
        self.log = InMemoryLog(partitions=2)
        self.pipeline = Pipeline(
            self.log, limits(**({"grace_ms": 0, "group_deadline_ms": 30_000, "batch_groups": 2} | rules))
        )
        self.now_ms = T0_MS

    def feed(self, *events: Event) -> None:
        for event in events:
            self.log.append(OutRecord.of(TRAJECTORY_EVENTS, event))
        self.pipeline.run()

    def finish(self, *rollouts: Rollout, reward: float | None = 1.0) -> None:
        """Let the rollouts run to their seals, one after the other."""
        for rollout in rollouts:
            self.feed(*rollout.whole(1, reward=reward))
            self.wait(1_000)

    def give(self, rollout: Rollout, decision: str, **changes: Any) -> None:
        """A verdict on the rollout's group, or with `trajectory_id` on one trajectory."""
        self.now_ms += 1
        given = VerdictGiven(
            **{
                "event_id": derived_id("verdict", rollout.group_id, self.now_ms),
                "event_time_ms": self.now_ms,
                "source": "test",
                "prompt_id": rollout.prompt_id,
                "group_id": rollout.group_id,
                "decision": decision,
                "given_by": "ada",
            }
            | changes
        )
        self.feed(given)

    def events(self, kind: type[Event]) -> list[Any]:
        """Events of one type on `groups`, ticks and all."""
        return [e for e in read(GROUPS, self.log.records(GROUPS.name)) if isinstance(e, kind)]

    def wait(self, log_ms: int) -> None:
        for _ in range(0, log_ms, 1_000):
            self.now_ms += 1_000
            self.pipeline.tick(self.now_ms)

    def decisions(self) -> list[GroupDecision]:
        return [e for e in read(GROUPS, self.log.records(GROUPS.name)) if isinstance(e, GroupDecision)]

    def batches(self) -> list[BatchReady]:
        return [
            e for e in read(READY_BATCHES, self.log.records(READY_BATCHES.name)) if isinstance(e, BatchReady)
        ]


def rollout(prompt: str, index: int, n: int = 2, **more: Any) -> Rollout:
    return Rollout(f"{prompt}-{index}", prompt, rollouts=n, start_ms=T0_MS + 1_000 * index, **more)
