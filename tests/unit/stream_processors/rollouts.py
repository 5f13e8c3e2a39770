"""Rollouts as events, and what came of them: shared by the processors' unit and integration tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from agentworld.contract.codec import decode
from agentworld.contract.delta import Leaf, Prompt, leaf_of, shorten
from agentworld.contract.events import (
    EngineCall,
    Event,
    RewardAssigned,
    StepCaptured,
    StepRequest,
    TrajectoryCompleted,
    TrajectoryRegistered,
)
from agentworld.contract.ids import derived_id, group_id
from agentworld.contract.topics import TopicSpec
from agentworld.platform.log import Record

T0_MS = 1_764_500_000_000


class Rollout:
    """One rollout's events, times counted from `start_ms`; equal names give equal events."""

    def __init__(
        self,
        trajectory_id: str,
        prompt_id: str,
        *,
        rollouts: int = 2,
        run_id: str = "run",
        channel: str = "train",
        start_ms: int = T0_MS,
    ) -> None:
        self.trajectory_id = trajectory_id
        self.prompt_id = prompt_id
        self.rollouts = rollouts
        self.run_id = run_id
        self.channel = channel
        self.start_ms = start_ms
        self.group_id = group_id(run_id, channel, 0, prompt_id)

    def registered(self, **changes: object) -> TrajectoryRegistered:
        event = TrajectoryRegistered(
            event_id=derived_id("registered", self.trajectory_id),
            event_time_ms=self.start_ms,
            source="test",
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt_id,
            run_id=self.run_id,
            channel=self.channel,
            round=0,
            rollouts=self.rollouts,
            group_id=self.group_id,
        )
        return msgspec.structs.replace(event, **changes)

    def steps(self, turns: int = 3) -> list[StepCaptured]:
        """Each prompt extends the turn before."""
        ids, messages = [1, 2, 3], [b'{"role":"user","content":"go"}']
        leaves: list[Leaf] = []
        made = []
        for turn in range(turns):
            prompt = Prompt(ids=list(ids), messages=list(messages), tools=None)
            step = self.step(turn, prompt, leaves)
            made.append(step)
            leaf = leaf_of(step, prompt)
            leaves = [leaf, *leaves]
            ids = [*leaf.ids, 50 + turn]
            messages = [*leaf.messages, b'{"role":"tool","content":"42"}']
        return made

    def step(
        self,
        turn: int,
        prompt: Prompt | None = None,
        leaves: Sequence[Leaf] = (),
        **changes: object,
    ) -> StepCaptured:
        prompt = prompt or Prompt(ids=[1, 2, 3], messages=[b'{"role":"user","content":"go"}'], tools=None)
        event = StepCaptured(
            event_id=derived_id("captured", self.trajectory_id, turn),
            event_time_ms=self.start_ms + 10 * turn + 5,
            source="test",
            step_id=derived_id("step", self.trajectory_id, turn),
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt_id,
            status="ok",
            request=StepRequest(protocol="chat_completions", model="demo", stream=False),
            prompt=shorten(prompt, leaves),
            response_ids=[100 + turn, 200 + turn],
            response_logprobs=[-0.5, -0.25],
            message=msgspec.Raw(b'{"role":"assistant","content":"hm"}'),
            finish_reason="stop",
            token_source="engine",
            engine=EngineCall(engine="e", policy_version_start=3, policy_version_end=3),
            started_at_ms=self.start_ms + 10 * turn,
            latency_ms=5.0,
        )
        return msgspec.structs.replace(event, **changes)

    def completed(self, outcome: str = "succeeded", **changes: object) -> TrajectoryCompleted:
        event = TrajectoryCompleted(
            event_id=derived_id("completed", self.trajectory_id),
            event_time_ms=self.start_ms + 500,
            source="test",
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt_id,
            outcome=outcome,  # type: ignore[arg-type]
        )
        return msgspec.structs.replace(event, **changes)

    def reward(
        self, value: float, *, version: int = 1, step_id: str | None = None, name: str = "reward"
    ) -> RewardAssigned:
        return RewardAssigned(
            event_id=derived_id("reward", self.trajectory_id, name, step_id or "", version),
            event_time_ms=self.start_ms + 600 + version,
            source="test",
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt_id,
            value=value,
            name=name,
            step_id=step_id,
            version=version,
        )

    def whole(self, turns: int = 3, *, reward: float | None = 1.0) -> list[Event]:
        """Everything from registration to completion, in order."""
        rewards = [] if reward is None else [self.reward(reward)]
        return [self.registered(), *self.steps(turns), *rewards, self.completed()]


def read(spec: TopicSpec, records: Iterable[Record]) -> list[Event]:
    """The events of records of one topic."""
    return [decode(spec, record.value) for record in records]
