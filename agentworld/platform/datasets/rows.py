"""A resolved batch as flat rows, one per step. Pure.

Equal batches give equal rows, wherever they were read from: logprobs are rounded to float32, which is
what ClickHouse keeps, and free JSON objects have sorted keys.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from agentworld.platform.resolved import ResolvedBatch, ResolvedGroup, ResolvedStep, ResolvedTrajectory

Kind = Literal["text", "flag", "count", "version", "real", "ids", "logprobs", "texts"]

COLUMNS: Mapping[str, Kind] = {
    "run_id": "text",
    "channel": "text",
    "batch_id": "text",
    "batch_sequence": "count",
    "group_id": "text",
    "group_version": "count",
    "prompt_id": "text",
    "round": "count",
    "rollouts": "count",
    "trajectory_id": "text",
    "rollout_index": "count",
    "step_index": "count",
    "step_id": "text",
    "parent_step_id": "text",
    "relation": "text",
    "status": "text",
    "trained": "flag",
    "superseded": "flag",
    "trainable": "flag",
    "integrity": "texts",
    "token_source": "text",
    "prompt_ids": "ids",
    "response_ids": "ids",
    "logprobs": "logprobs",
    "messages": "text",
    "tools": "text",
    "message": "text",
    "finish_reason": "text",
    "model": "text",
    "engine": "text",
    "engine_request_id": "text",
    "policy": "text",
    "policy_version_start": "version",
    "policy_version_end": "version",
    "sampling": "text",
    "latency_ms": "real",
    "step_reward": "real",
    "reward": "real",
    "rewards": "text",
    "outcome": "text",
    "outcome_reason": "text",
    "seal_reason": "text",
    "trained_rule": "text",
    "step_extras": "text",
    "step_metadata": "text",
    "metadata": "text",
}
"""Columns in order, and of what kind their values are; docs/datasets.md says what each means."""


def rows_of(batch: ResolvedBatch, *, only_trained: bool) -> Iterator[dict[str, Any]]:
    """The batch's steps in its order of groups, trajectories and steps."""
    for group in batch.groups:
        for trajectory in group.trajectories:
            for step in trajectory.steps:
                if step.trained or not only_trained:
                    yield _row(batch, group, trajectory, step)


def json_line(row: Mapping[str, Any]) -> bytes:
    """A row as a line of JSON: what exports hold and what the content digest is of."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _row(
    batch: ResolvedBatch, group: ResolvedGroup, trajectory: ResolvedTrajectory, step: ResolvedStep
) -> dict[str, Any]:
    branch = trajectory.trained_branch
    return {
        "run_id": trajectory.run_id,
        "channel": trajectory.channel,
        "batch_id": batch.event.batch_id,
        "batch_sequence": batch.event.sequence,
        "group_id": group.group_id,
        "group_version": group.version,
        "prompt_id": trajectory.prompt_id,
        "round": trajectory.round,
        "rollouts": group.rollouts,
        "trajectory_id": trajectory.trajectory_id,
        "rollout_index": trajectory.rollout_index,
        "step_index": step.step_index,
        "step_id": step.step_id,
        "parent_step_id": step.parent_step_id,
        "relation": step.relation,
        "status": step.status,
        "trained": step.trained,
        "superseded": step.superseded,
        "trainable": step.trainable,
        "integrity": list(step.integrity),
        "token_source": step.token_source,
        "prompt_ids": step.prompt_ids,
        "response_ids": step.response_ids,
        "logprobs": array("f", step.logprobs).tolist(),
        "messages": _ordered(step.messages),
        "tools": None if step.tools is None else _ordered(step.tools),
        "message": None if step.message is None else _ordered(step.message),
        "finish_reason": step.finish_reason,
        "model": step.model,
        "engine": step.engine,
        "engine_request_id": step.engine_request_id,
        "policy": step.policy,
        "policy_version_start": step.policy_version_start,
        "policy_version_end": step.policy_version_end,
        "sampling": _sorted(step.sampling),
        "latency_ms": float(step.latency_ms),
        "step_reward": _real(step.reward),
        "reward": _real(trajectory.reward),
        "rewards": _sorted(trajectory.rewards),
        "outcome": trajectory.outcome,
        "outcome_reason": trajectory.outcome_reason,
        "seal_reason": trajectory.seal_reason,
        "trained_rule": branch.rule if branch else None,
        "step_extras": _sorted(step.extras),
        "step_metadata": _sorted(step.metadata),
        "metadata": _sorted(trajectory.metadata),
    }


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)


def _ordered(value: Any) -> str:
    # Chat templates may print keys in the order in which they came.
    return json.dumps(value, separators=(",", ":"))


def _sorted(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
