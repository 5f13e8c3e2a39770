"""Topic `ready-batches`: what the trainer consumes, by reference."""

from __future__ import annotations

from agentworld.contract.events.base import Event, Json, Value
from agentworld.contract.events.groups import GroupMember


class BatchGroup(Value, frozen=True, kw_only=True):
    """A group in a batch, as decided at `version`."""

    group_id: str
    prompt_id: str
    round: int
    version: int
    rollouts: int
    members: list[GroupMember]


class BatchReady(Event, frozen=True, kw_only=True, tag="batch_ready"):
    """Complete groups to train on together. Payloads stay in `trajectories`."""

    batch_id: str
    """Derived from run, channel, sequence and the group versions."""
    run_id: str
    channel: str
    sequence: int
    """0, 1, … within run and channel."""
    groups: list[BatchGroup]
    trajectories: int
    steps: int
    response_tokens: int
    policy_version_min: int | None
    policy_version_max: int | None
    reason: str
    """`full`, or `linger` where the batch was released short after the configured wait."""
    replay_of: str | None = None
    """Run id that was replayed, where this batch comes from a replay."""
    details: Json = {}
