"""`groups` → `groups` (newest decision), `group_decisions` (all of them) and `group_notices`."""

from __future__ import annotations

from agentworld.contract.events import GroupDecision, GroupEvent, RolloutsConflicted, RolloutWanted
from agentworld.platform.log import Record
from sinks.rows.row import Row, json_text, origin


def rows_of(record: Record, event: GroupEvent) -> list[Row]:
    """A decision is the same row in two tables: one replaces by group, the other by decision."""
    if isinstance(event, RolloutWanted | RolloutsConflicted):
        return [_notice(record, event)]
    if not isinstance(event, GroupDecision):
        return []
    values = {
        "run_id": event.run_id,
        "channel": event.channel,
        "group_id": event.group_id,
        "prompt_id": event.prompt_id,
        "round": event.round,
        "decision": str(event.__struct_config__.tag),
        "version": event.version,
        "rollouts": event.rollouts,
        "members": len(event.members),
        "trajectory_ids": [member.trajectory_id for member in event.members],
        "rewards": [member.reward for member in event.members],
        "outcomes": [member.outcome for member in event.members],
        "steps": sum(member.steps for member in event.members),
        "prompt_tokens": sum(member.prompt_tokens for member in event.members),
        "response_tokens": sum(member.response_tokens for member in event.members),
        "policy_version_min": min(
            (m.policy_version_min for m in event.members if m.policy_version_min is not None), default=None
        ),
        "policy_version_max": max(
            (m.policy_version_max for m in event.members if m.policy_version_max is not None), default=None
        ),
        "reason": event.reason,
        "decided_by": event.decided_by,
        "details": json_text(event.details),
        "event_id": event.event_id,
        **origin(record, event, version=event.version),
    }
    return [Row("groups", values), Row("group_decisions", values)]


def _notice(record: Record, event: RolloutWanted | RolloutsConflicted) -> Row:
    if isinstance(event, RolloutWanted):
        about, reason = event.replaces_trajectory_id, event.reason
    else:
        about, reason = event.trajectory_id, f"registered with n = {event.conflicting_rollouts}"
    return Row(
        "group_notices",
        {
            "run_id": event.run_id,
            "channel": event.channel,
            "group_id": event.group_id,
            "event_id": event.event_id,
            "notice": str(event.__struct_config__.tag),
            "prompt_id": event.prompt_id,
            "round": event.round,
            "trajectory_id": about,
            "rollouts": event.rollouts,
            "reason": reason,
            **origin(record, event),
        },
    )
