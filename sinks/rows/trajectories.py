"""`trajectories` → `trajectories`, `steps`, `revisions`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentworld.contract.delta import Prompt
from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import (
    SealedStep,
    TrajectoriesEvent,
    TrajectoryRevised,
    TrajectorySealed,
)
from agentworld.platform.log import Record
from agentworld.platform.resolved import PROMPT_UNRESOLVED, expand_each, policy_versions
from sinks.rows.row import Row, json_text, origin, raw_array, raw_text

_STEP_REWARD_NAME = "reward"


def rows_of(record: Record, event: TrajectoriesEvent) -> list[Row]:
    """One row per trajectory and one per step, prompts expanded."""
    match event:
        case TrajectorySealed():
            prompts = expand_each([placed.step for placed in event.steps])
            steps = [_step(record, event, placed, prompts[placed.step.step_id]) for placed in event.steps]
            return [*steps, _trajectory(record, event)]
        case TrajectoryRevised():
            return [_revision(record, event)]
        case _:
            return []


def _step(
    record: Record, sealed: TrajectorySealed, placed: SealedStep, prompt: Prompt | IntegrityError
) -> Row:
    step = placed.step
    engine, request = step.engine, step.request
    integrity, detail = list(step.integrity), ""
    whole = Prompt(ids=(), messages=(), tools=None)
    if isinstance(prompt, IntegrityError):
        integrity.append(PROMPT_UNRESOLVED)
        detail = str(prompt)
    else:
        whole = prompt
    return Row(
        "steps",
        {
            "run_id": sealed.run_id,
            "group_id": sealed.group_id,
            "trajectory_id": sealed.trajectory_id,
            "step_id": step.step_id,
            "prompt_id": sealed.prompt_id,
            "channel": sealed.channel,
            "round": sealed.round,
            "rollout_index": sealed.rollout_index,
            "step_index": placed.step_index,
            "status": step.status,
            "relation": placed.relation,
            "parent_step_id": placed.parent_step_id,
            "base_step_id": step.prompt.base_step_id,
            "superseded": placed.superseded,
            "trainable": step.trainable and not detail,
            "integrity": integrity,
            "integrity_detail": detail,
            "token_source": step.token_source,
            "prompt_ids": list(whole.ids),
            "response_ids": step.response_ids,
            "logprobs": step.response_logprobs,
            "prompt_tokens": step.prompt.prompt_tokens,
            "response_tokens": len(step.response_ids),
            "cached_tokens": step.cached_tokens,
            "prompt_digest": step.prompt.digest,
            "messages": "" if detail else raw_array(whole.messages),
            "tools": raw_text(whole.tools),
            "message": raw_text(step.message),
            "client_message": raw_text(step.client_message),
            "finish_reason": step.finish_reason,
            "step_reward": _step_reward(sealed, step.step_id),
            "reward": sealed.reward,
            "outcome": sealed.outcome,
            "policy": engine.policy,
            "policy_version_start": engine.policy_version_start,
            "policy_version_end": engine.policy_version_end,
            "protocol": request.protocol,
            "requested_model": request.model,
            "model": engine.model,
            "engine": engine.engine,
            "engine_request_id": engine.request_id,
            "stream": request.stream,
            "sampling": json_text(request.sampling),
            "client": request.client,
            "choice_index": step.choice_index,
            "latency_ms": step.latency_ms,
            "first_token_ms": step.first_token_ms,
            "error_code": step.error.code if step.error else "",
            "error_message": step.error.message if step.error else "",
            "extras": json_text(step.extras),
            "metadata": json_text(step.metadata),
            "sealed_at": sealed.event_time_ms,
            # The time of the request never changes for a step: it decides the partition.
            **origin(record, sealed) | {"event_time": step.started_at_ms},
        },
    )


def _step_reward(sealed: TrajectorySealed, step_id: str) -> float | None:
    for reward in sealed.rewards:
        if reward.step_id == step_id and reward.name == _STEP_REWARD_NAME:
            return reward.value
    return None


def _trajectory(record: Record, sealed: TrajectorySealed) -> Row:
    steps = [placed.step for placed in sealed.steps]
    return Row(
        "trajectories",
        {
            "run_id": sealed.run_id,
            "group_id": sealed.group_id,
            "trajectory_id": sealed.trajectory_id,
            "prompt_id": sealed.prompt_id,
            "channel": sealed.channel,
            "round": sealed.round,
            "rollouts": sealed.rollouts,
            "rollout_index": sealed.rollout_index,
            "policy": sealed.policy,
            "outcome": sealed.outcome,
            "outcome_reason": sealed.outcome_reason,
            "seal_reason": sealed.seal_reason,
            "reward": sealed.reward,
            "rewards": json_text(sealed.rewards),
            "steps": len(steps),
            "branches": len(sealed.branches),
            "branch_list": json_text(sealed.branches),
            "trained_tip_step_id": sealed.trained_branch.tip_step_id if sealed.trained_branch else None,
            "trained_by": sealed.trained_branch.rule if sealed.trained_branch else "",
            "trained_branch": json_text(sealed.trained_branch) if sealed.trained_branch else "",
            "prompt_tokens": sum(step.prompt.prompt_tokens for step in steps),
            "response_tokens": sum(len(step.response_ids) for step in steps),
            **_version_range(policy_versions(steps)),
            "clean": sealed.integrity.clean,
            "integrity": json_text(sealed.integrity),
            "parent_trajectory_id": sealed.parent_trajectory_id,
            "replaces_trajectory_id": sealed.replaces_trajectory_id,
            "metadata": json_text(sealed.metadata),
            "registered_at": sealed.registered_at_ms,
            **origin(record, sealed),
        },
    )


def _version_range(versions: Iterable[int]) -> dict[str, Any]:
    known = list(versions)
    return {
        "policy_version_min": min(known, default=None),
        "policy_version_max": max(known, default=None),
    }


def _revision(record: Record, event: TrajectoryRevised) -> Row:
    return Row(
        "revisions",
        {
            "run_id": event.run_id,
            "group_id": event.group_id,
            "trajectory_id": event.trajectory_id,
            "prompt_id": event.prompt_id,
            "channel": event.channel,
            "revision": event.revision,
            "reward": event.reward,
            "rewards": json_text(event.rewards),
            "late_steps": event.late_steps,
            **origin(record, event, version=event.revision),
        },
    )
