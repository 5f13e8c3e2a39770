"""`trajectory-events` → `captures`, `registrations`, `rewards`, `verdicts`."""

from __future__ import annotations

from agentworld.contract.events import (
    RewardAssigned,
    StepCaptured,
    TrajectoryEvent,
    TrajectoryRegistered,
    VerdictGiven,
)
from agentworld.platform.log import Record
from sinks.rows.row import Row, json_text, origin


def rows_of(record: Record, event: TrajectoryEvent) -> list[Row]:
    """Light rows, at once; completions and clock ticks have none."""
    match event:
        case StepCaptured():
            return [_capture(record, event)]
        case TrajectoryRegistered():
            return [_registration(record, event)]
        case RewardAssigned():
            return [_reward(record, event)]
        case VerdictGiven():
            return [_verdict(record, event)]
        case _:
            return []


def _capture(record: Record, step: StepCaptured) -> Row:
    return Row(
        "captures",
        {
            "prompt_id": step.prompt_id,
            "trajectory_id": step.trajectory_id,
            "step_id": step.step_id,
            "status": step.status,
            "source": step.source,
            "protocol": step.request.protocol,
            "model": step.engine.model or step.request.model,
            "engine": step.engine.engine,
            "policy": step.engine.policy,
            "policy_version_start": step.engine.policy_version_start,
            "policy_version_end": step.engine.policy_version_end,
            "token_source": step.token_source,
            "finish_reason": step.finish_reason,
            "stream": step.request.stream,
            "trainable": step.trainable,
            "integrity": step.integrity,
            "prompt_tokens": step.prompt.prompt_tokens,
            "appended_tokens": len(step.prompt.append_ids),
            "response_tokens": len(step.response_ids),
            "cached_tokens": step.cached_tokens,
            "latency_ms": step.latency_ms,
            "first_token_ms": step.first_token_ms,
            "error_code": step.error.code if step.error else "",
            "error_message": step.error.message if step.error else "",
            "retry_count": step.request.retry_count,
            "client": step.request.client,
            # The time of the request never changes for a step: it decides the partition.
            **origin(record, step) | {"event_time": step.started_at_ms},
        },
    )


def _registration(record: Record, event: TrajectoryRegistered) -> Row:
    return Row(
        "registrations",
        {
            "run_id": event.run_id,
            "channel": event.channel,
            "group_id": event.group_id,
            "trajectory_id": event.trajectory_id,
            "prompt_id": event.prompt_id,
            "round": event.round,
            "rollouts": event.rollouts,
            "rollout_index": event.rollout_index,
            "policy": event.policy,
            "registered_by": event.registered_by,
            "parent_trajectory_id": event.parent_trajectory_id,
            "replaces_trajectory_id": event.replaces_trajectory_id,
            "metadata": json_text(event.metadata),
            **origin(record, event),
        },
    )


def _reward(record: Record, event: RewardAssigned) -> Row:
    return Row(
        "rewards",
        {
            "prompt_id": event.prompt_id,
            "trajectory_id": event.trajectory_id,
            "step_id": event.step_id or "",
            "name": event.name,
            "value": event.value,
            "version": event.version,
            "given_by": event.given_by,
            "extra": json_text(event.extra),
            "event_id": event.event_id,
            **origin(record, event, version=event.version),
        },
    )


def _verdict(record: Record, event: VerdictGiven) -> Row:
    return Row(
        "verdicts",
        {
            "group_id": event.group_id,
            "event_id": event.event_id,
            "trajectory_id": event.trajectory_id,
            "prompt_id": event.prompt_id,
            "decision": event.decision,
            "given_by_kind": event.given_by_kind,
            "given_by": event.given_by,
            "reason": event.reason,
            "value": json_text(event.value),
            **origin(record, event),
        },
    )
