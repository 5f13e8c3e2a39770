"""Resolved batches: references followed, prompts whole, every number aligned. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentworld.contract.delta import Prompt, expand
from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import (
    BatchReady,
    Branch,
    GroupMember,
    SealedStep,
    StepCaptured,
    TrainedBranch,
    TrajectorySealed,
    raw_json,
)
from agentworld.platform.trained import trained_in

PROMPT_UNRESOLVED = "prompt_unresolved"
"""Integrity mark of a step whose prompt could not be expanded: it has no prompt ids or messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedStep:
    """One model call, whole. `logprobs[i]` belongs to `response_ids[i]`."""

    step_id: str
    step_index: int
    status: str
    relation: str
    parent_step_id: str | None
    """The step it goes on from, rewrites or runs beside."""
    superseded: bool
    trained: bool
    """On the branch that trains. Says nothing of the tokens: see `trainable`."""
    trainable: bool
    """False also where the prompt could not be expanded (`integrity` says so)."""
    integrity: tuple[str, ...]
    token_source: str
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    """Natural logarithms; float32 precision where they come from ClickHouse."""
    messages: list[Any]
    """The prompt's chat messages."""
    tools: list[Any] | None
    message: dict[str, Any] | None
    """The sampled turn; none where nothing was sampled."""
    finish_reason: str | None
    model: str
    engine: str
    engine_request_id: str
    """The engine's id of the completion; empty where it gave none."""
    policy: str
    policy_version_start: int | None
    policy_version_end: int | None
    sampling: dict[str, Any]
    reward: float | None
    """Reward of this step alone, under the name `reward`."""
    latency_ms: float
    extras: dict[str, Any]
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTrajectory:
    """One rollout of a group, steps in order."""

    trajectory_id: str
    prompt_id: str
    group_id: str
    run_id: str
    channel: str
    round: int
    rollout_index: int | None
    policy: str
    outcome: str
    outcome_reason: str
    seal_reason: str
    reward: float | None
    """The reward the batch was built with."""
    rewards: list[dict[str, Any]]
    """All named rewards at the seal."""
    integrity: dict[str, Any]
    metadata: dict[str, Any]
    branches: tuple[Branch, ...]
    """As sealed; none where ClickHouse stored the trajectory before it kept them."""
    trained_branch: TrainedBranch | None
    steps: tuple[ResolvedStep, ...]
    read_from: Literal["log", "clickhouse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedGroup:
    """A group as the batch holds it."""

    group_id: str
    prompt_id: str
    round: int
    version: int
    rollouts: int
    trajectories: tuple[ResolvedTrajectory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBatch:
    """A batch with everything it refers to; never a part of it."""

    event: BatchReady
    groups: tuple[ResolvedGroup, ...]

    @property
    def trajectories(self) -> Iterator[ResolvedTrajectory]:
        """All trajectories, group by group."""
        return (trajectory for group in self.groups for trajectory in group.trajectories)


def expand_each(steps: Sequence[StepCaptured]) -> dict[str, Prompt | IntegrityError]:
    """Whole prompts by step id; for a step that cannot be expanded, the reason why."""
    try:
        return dict(expand(steps))
    except IntegrityError:
        pass
    by_id = {step.step_id: step for step in steps}
    found: dict[str, Prompt | IntegrityError] = {}
    for step_id in by_id:
        chain: dict[str, StepCaptured] = {}
        cursor: str | None = step_id
        while cursor is not None and cursor in by_id and cursor not in chain:
            chain[cursor] = by_id[cursor]
            cursor = by_id[cursor].prompt.base_step_id
        try:
            found[step_id] = expand(chain.values())[step_id]
        except IntegrityError as exc:
            found[step_id] = exc
    return found


def policy_versions(steps: Sequence[StepCaptured]) -> list[int]:
    """All policy versions that the steps were sampled under."""
    return [
        version
        for step in steps
        for version in (step.engine.policy_version_start, step.engine.policy_version_end)
        if version is not None
    ]


def resolve_sealed(sealed: TrajectorySealed, member: GroupMember) -> ResolvedTrajectory:
    """The trajectory in `sealed`, as `member` of a batch. Raises `IntegrityError` (see `check`)."""
    trajectory = resolve_trajectory(sealed, member.reward)
    check(trajectory, member)
    return trajectory


def resolve_trajectory(sealed: TrajectorySealed, reward: float | None) -> ResolvedTrajectory:
    """The trajectory in `sealed`, `reward` being the one that trains."""
    prompts = expand_each([placed.step for placed in sealed.steps])
    rewards = {r.step_id: r.value for r in sealed.rewards if r.name == "reward" and r.step_id}
    trained = trained_in(sealed)
    return ResolvedTrajectory(
        trajectory_id=sealed.trajectory_id,
        prompt_id=sealed.prompt_id,
        group_id=sealed.group_id,
        run_id=sealed.run_id,
        channel=sealed.channel,
        round=sealed.round,
        rollout_index=sealed.rollout_index,
        policy=sealed.policy,
        outcome=sealed.outcome,
        outcome_reason=sealed.outcome_reason,
        seal_reason=sealed.seal_reason,
        reward=reward,
        rewards=[
            {"name": r.name, "value": r.value, "step_id": r.step_id, "version": r.version}
            for r in sealed.rewards
        ],
        integrity={name: getattr(sealed.integrity, name) for name in sealed.integrity.__struct_fields__},
        metadata=sealed.metadata,
        branches=tuple(sealed.branches),
        trained_branch=sealed.trained_branch,
        steps=tuple(
            _step(
                placed,
                prompts[placed.step.step_id],
                reward=rewards.get(placed.step.step_id),
                trained=placed.step.step_id in trained,
            )
            for placed in sealed.steps
        ),
        read_from="log",
    )


def _step(
    placed: SealedStep, prompt: Prompt | IntegrityError, *, reward: float | None, trained: bool
) -> ResolvedStep:
    step = placed.step
    resolved = not isinstance(prompt, IntegrityError)
    whole = prompt if isinstance(prompt, Prompt) else Prompt(ids=(), messages=(), tools=None)
    message = raw_json(step.message)
    return ResolvedStep(
        step_id=step.step_id,
        step_index=placed.step_index,
        status=step.status,
        relation=placed.relation,
        parent_step_id=placed.parent_step_id,
        superseded=placed.superseded,
        trained=trained,
        trainable=step.trainable and resolved,
        integrity=(*step.integrity, *(() if resolved else (PROMPT_UNRESOLVED,))),
        token_source=step.token_source,
        prompt_ids=list(whole.ids),
        response_ids=step.response_ids,
        logprobs=step.response_logprobs,
        messages=[json.loads(message) for message in whole.messages],
        tools=None if whole.tools is None else json.loads(whole.tools),
        message=None if message is None else json.loads(message),
        finish_reason=step.finish_reason,
        model=step.engine.model,
        engine=step.engine.engine,
        engine_request_id=step.engine.request_id,
        policy=step.engine.policy,
        policy_version_start=step.engine.policy_version_start,
        policy_version_end=step.engine.policy_version_end,
        sampling=step.request.sampling,
        reward=reward,
        latency_ms=step.latency_ms,
        extras=step.extras,
        metadata=step.metadata,
    )


def check(trajectory: ResolvedTrajectory, member: GroupMember) -> None:
    """Raise `IntegrityError` unless the trajectory is the member named, whole and aligned."""
    name = f"trajectory {member.trajectory_id}"
    if trajectory.trajectory_id != member.trajectory_id:
        raise IntegrityError(f"{name}: trajectory {trajectory.trajectory_id} was found in its place")
    if len(trajectory.steps) != member.steps:
        raise IntegrityError(f"{name}: has {len(trajectory.steps)} steps, the batch says {member.steps}")
    sampled = sum(len(step.response_ids) for step in trajectory.steps)
    if sampled != member.response_tokens:
        raise IntegrityError(
            f"{name}: has {sampled} response tokens, the batch says {member.response_tokens}"
        )
    for step in trajectory.steps:
        if step.trainable and len(step.response_ids) != len(step.logprobs):
            raise IntegrityError(
                f"{name}, step {step.step_id}: {len(step.response_ids)} response ids and "
                f"{len(step.logprobs)} logprobs, yet marked trainable"
            )
