"""`ready-batches` → `batches` and `batch_members`."""

from __future__ import annotations

from agentworld.contract.codec import encode
from agentworld.contract.events import BatchGroup, BatchReady, GroupMember
from agentworld.platform.log import Record
from sinks.rows.row import Row, origin


def rows_of(record: Record, event: BatchReady) -> list[Row]:
    """One row for the batch, one for each trajectory in it."""
    members = [
        _member(record, event, group, position, member)
        for group in event.groups
        for position, member in enumerate(group.members)
    ]
    return [*members, _batch(record, event)]


def _batch(record: Record, event: BatchReady) -> Row:
    return Row(
        "batches",
        {
            "run_id": event.run_id,
            "channel": event.channel,
            "batch_id": event.batch_id,
            "sequence": event.sequence,
            "group_ids": [group.group_id for group in event.groups],
            "trajectory_ids": [m.trajectory_id for group in event.groups for m in group.members],
            "groups": len(event.groups),
            "trajectories": event.trajectories,
            "steps": event.steps,
            "response_tokens": event.response_tokens,
            "policy_version_min": event.policy_version_min,
            "policy_version_max": event.policy_version_max,
            "reason": event.reason,
            "replay_of": event.replay_of,
            "event": encode(event).decode(),
            **origin(record, event),
        },
    )


def _member(record: Record, event: BatchReady, group: BatchGroup, position: int, member: GroupMember) -> Row:
    return Row(
        "batch_members",
        {
            "run_id": event.run_id,
            "channel": event.channel,
            "batch_id": event.batch_id,
            "group_id": group.group_id,
            "trajectory_id": member.trajectory_id,
            "prompt_id": group.prompt_id,
            "group_version": group.version,
            "position": position,
            "outcome": member.outcome,
            "reward": member.reward,
            "steps": member.steps,
            "prompt_tokens": member.prompt_tokens,
            "response_tokens": member.response_tokens,
            "policy_version_min": member.policy_version_min,
            "policy_version_max": member.policy_version_max,
            "clean": member.clean,
            "sealed_at": member.sealed_at_ms,
            "place_partition": member.place.partition,
            "place_offset": member.place.offset,
            **origin(record, event),
        },
    )
