"""Realistic events for tests: multi-step rollouts with deltas, tools, logprobs; groups; batches.

Ids and numbers are derived from names, so equal calls give equal events.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.contract.delta import Leaf, Prompt, leaf_of, shorten
from agentworld.contract.events import (
    BatchGroup,
    BatchReady,
    Branch,
    EngineCall,
    GroupMember,
    GroupReady,
    IntegrityReport,
    Place,
    Reward,
    SealedStep,
    StepCaptured,
    StepRequest,
    TrainedBranch,
    TrajectoryRegistered,
    TrajectorySealed,
)
from agentworld.contract.ids import derived_id, group_id

T0_MS = 1_764_500_000_000
"""2025-11-30: when the built rollouts begin, Unix ms."""

RUN, CHANNEL = "run-1", "train"
TOOLS = json.dumps([{"type": "function", "function": {"name": "calculator"}}]).encode()


def registered(trajectory_id: str, prompt_id: str = "task-1", *, rollouts: int = 2) -> TrajectoryRegistered:
    """The registration of a rollout of `RUN`."""
    return TrajectoryRegistered(
        event_id=derived_id("registered", trajectory_id),
        event_time_ms=T0_MS,
        source="gateway/0",
        trajectory_id=trajectory_id,
        prompt_id=prompt_id,
        run_id=RUN,
        channel=CHANNEL,
        round=0,
        rollouts=rollouts,
        group_id=group_id(RUN, CHANNEL, 0, prompt_id),
        metadata={"data_source": "words"},
    )


def rollout(trajectory_id: str, prompt_id: str = "task-1", *, turns: int = 3) -> list[StepCaptured]:
    """The captured steps of an agent with a tool: each prompt extends the turn before."""
    chance = random.Random(trajectory_id)
    ids = [chance.randrange(150_000) for _ in range(40)]
    messages = [b'{"role":"system","content":"You calculate."}', b'{"role":"user","content":"2+2\\u00e9?"}']
    leaves: list[Leaf] = []
    steps = []
    for turn in range(turns):
        prompt = Prompt(ids=list(ids), messages=list(messages), tools=TOOLS)
        sampled = [chance.randrange(150_000) for _ in range(5 + turn)]
        step = captured(
            trajectory_id, prompt_id, turn=turn, prompt=prompt, leaves=leaves, response_ids=sampled
        )
        leaves = [leaf_of(step, prompt), *leaves]
        tool_result = json.dumps({"role": "tool", "content": str(turn)}).encode()
        ids = [*leaves[0].ids, *(chance.randrange(150_000) for _ in range(7))]
        messages = [*leaves[0].messages, tool_result]
        steps.append(step)
    return steps


def captured(
    trajectory_id: str,
    prompt_id: str = "task-1",
    *,
    turn: int,
    prompt: Prompt,
    leaves: Sequence[Leaf] = (),
    response_ids: Sequence[int] = (7, 8, 9),
) -> StepCaptured:
    """One model call, its prompt encoded against `leaves`."""
    started = T0_MS + 1000 * turn
    return StepCaptured(
        event_id=derived_id("step_event", trajectory_id, turn),
        event_time_ms=started + 250,
        source="gateway/0",
        step_id=derived_id("step", trajectory_id, turn),
        trajectory_id=trajectory_id,
        prompt_id=prompt_id,
        status="ok",
        request=StepRequest(
            protocol="chat_completions", model="demo", stream=False, sampling={"temperature": 1.0}
        ),
        prompt=shorten(prompt, leaves),
        response_ids=list(response_ids),
        # Halves and quarters are exact in float32 too.
        response_logprobs=[-0.25 * (index + 1) for index in range(len(response_ids))],
        message=msgspec.Raw(json.dumps({"role": "assistant", "content": f"turn {turn}"}).encode()),
        finish_reason="stop",
        token_source="engine",
        engine=EngineCall(
            engine="engine-0",
            model="demo-1",
            request_id=f"cmpl-{turn}",
            policy_version_start=3,
            policy_version_end=4,
        ),
        started_at_ms=started,
        latency_ms=250.5,
        first_token_ms=None,
        cached_tokens=0 if turn == 0 else 40,
    )


def sealed(
    steps: Sequence[StepCaptured],
    *,
    trajectory_id: str | None = None,
    prompt_id: str = "task-1",
    reward: float | None = 1.0,
    **changes: Any,
) -> TrajectorySealed:
    """The sealed rollout of `steps` (which may be none: then name the trajectory)."""
    name = trajectory_id or steps[0].trajectory_id
    event = TrajectorySealed(
        event_id=derived_id("sealed", name),
        event_time_ms=T0_MS + 60_000,
        source="stream-processors.trajectory",
        trajectory_id=name,
        prompt_id=prompt_id,
        group_id=group_id(RUN, CHANNEL, 0, prompt_id),
        run_id=RUN,
        channel=CHANNEL,
        round=0,
        rollouts=2,
        rollout_index=0,
        policy="default",
        outcome="succeeded",
        outcome_reason="",
        seal_reason="completed",
        registered_at_ms=T0_MS,
        steps=[
            SealedStep(
                step_index=index,
                step=step,
                relation="extends" if step.prompt.base_step_id else "root",
                parent_step_id=step.prompt.base_step_id,
            )
            for index, step in enumerate(steps)
        ],
        branches=[Branch(tip_step_id=steps[-1].step_id, opened_as="root", steps=len(steps))] if steps else [],
        trained_branch=TrainedBranch(
            tip_step_id=steps[-1].step_id, steps=len(steps), rule="last_answer", reason="the only branch"
        )
        if steps
        else None,
        rewards=[]
        if reward is None
        else [Reward(name="reward", value=reward, step_id=None, version=1, given_by="rule")],
        reward=reward,
        integrity=IntegrityReport(),
        metadata={"data_source": "words"},
    )
    return msgspec.structs.replace(event, **changes)


def member(event: TrajectorySealed, place: Place) -> GroupMember:
    """The sealed rollout as a member of its group."""
    steps = [placed.step for placed in event.steps]
    return GroupMember(
        trajectory_id=event.trajectory_id,
        place=place,
        outcome=event.outcome,
        reward=event.reward,
        steps=len(steps),
        prompt_tokens=sum(step.prompt.prompt_tokens for step in steps),
        response_tokens=sum(len(step.response_ids) for step in steps),
        policy_version_min=3 if steps else None,
        policy_version_max=4 if steps else None,
        sealed_at_ms=event.event_time_ms,
        clean=event.integrity.clean,
    )


def group_ready(members: Sequence[GroupMember], prompt_id: str = "task-1", *, version: int = 1) -> GroupReady:
    """The decision that the group of `members` is ready."""
    group = group_id(RUN, CHANNEL, 0, prompt_id)
    return GroupReady(
        event_id=derived_id("group_ready", group, version),
        event_time_ms=T0_MS + 61_000,
        source="stream-processors.group",
        group_id=group,
        run_id=RUN,
        channel=CHANNEL,
        round=0,
        prompt_id=prompt_id,
        rollouts=len(members),
        version=version,
        members=list(members),
        reason="all rollouts are sealed",
        decided_by="complete",
    )


def batch_ready(groups: Sequence[GroupReady], *, sequence: int = 0) -> BatchReady:
    """The batch of `groups`."""
    members = [member for group in groups for member in group.members]
    return BatchReady(
        event_id=derived_id("batch_event", RUN, CHANNEL, sequence),
        event_time_ms=T0_MS + 62_000,
        source="stream-processors.batch",
        batch_id=derived_id("batch", RUN, CHANNEL, sequence),
        run_id=RUN,
        channel=CHANNEL,
        sequence=sequence,
        groups=[
            BatchGroup(
                group_id=group.group_id,
                prompt_id=group.prompt_id,
                round=group.round,
                version=group.version,
                rollouts=group.rollouts,
                members=group.members,
            )
            for group in groups
        ],
        trajectories=len(members),
        steps=sum(member.steps for member in members),
        response_tokens=sum(member.response_tokens for member in members),
        policy_version_min=3,
        policy_version_max=4,
        reason="full",
    )
