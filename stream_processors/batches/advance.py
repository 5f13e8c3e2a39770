"""What a group's event does to its place in the queue, and how waiting groups become a batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agentworld.contract.events import (
    BatchGroup,
    BatchReady,
    GroupDecision,
    GroupPartial,
    GroupReady,
    GroupRevised,
)
from agentworld.contract.ids import derived_id
from stream_processors.batches.state import ChannelState, GroupEntry
from stream_processors.rules import Rules

SOURCE = "stream-processors.batch"

replace = msgspec.structs.replace


def advance(
    channel: ChannelState, entry: GroupEntry | None, event: GroupDecision, *, log_ms: int
) -> tuple[ChannelState, GroupEntry | None]:
    """The channel and the group's entry after `event`.

    Ready and partial groups wait; a revision renews one that still waits; any other decision
    withdraws it. Events not newer than the entry, and events on a batched group, change nothing:
    `channel` and `entry` themselves are returned.
    """
    if entry is not None and (event.version <= entry.version or entry.status == "batched"):
        return channel, entry
    waiting = entry is not None and entry.status == "pending"
    if isinstance(event, GroupReady | GroupPartial) or (isinstance(event, GroupRevised) and waiting):
        group = BatchGroup(
            group_id=event.group_id,
            prompt_id=event.prompt_id,
            round=event.round,
            version=event.version,
            rollouts=event.rollouts,
            members=event.members,
        )
        if entry is not None and waiting:
            exempt = entry.exempt or _by_person(event)
            return channel, replace(entry, version=event.version, group=group, exempt=exempt)
        pending = GroupEntry(
            run_id=event.run_id,
            channel=event.channel,
            status="pending",
            version=event.version,
            arrival=channel.arrivals,
            since_ms=log_ms,
            group_id=event.group_id,
            group=group,
            exempt=_by_person(event),
        )
        return replace(channel, arrivals=channel.arrivals + 1), pending
    if entry is None:
        return channel, None
    if isinstance(event, GroupRevised):
        return channel, replace(entry, version=event.version)
    return channel, replace(entry, status="withdrawn", version=event.version, since_ms=log_ms, group=None)


def _by_person(event: GroupDecision) -> bool:
    return event.details.get("given_by_kind") == "person"


def batch(
    channel: ChannelState,
    taken: Sequence[GroupEntry],
    *,
    reason: str,
    event_time_ms: int,
    log_ms: int,
    rules: Rules,
) -> tuple[ChannelState, list[GroupEntry], BatchReady]:
    """Release the waiting groups `taken`, in that order."""
    groups = [entry.group for entry in taken if entry.group is not None]
    members = [member for group in groups for member in group.members]
    versions = [
        version
        for member in members
        for version in (member.policy_version_min, member.policy_version_max)
        if version is not None
    ]
    batch_id = derived_id(
        "batch",
        channel.run_id,
        channel.channel,
        channel.sequence,
        *(f"{group.group_id}:{group.version}" for group in groups),
    )
    event = BatchReady(
        event_id=derived_id("batch_ready", batch_id),
        event_time_ms=event_time_ms,
        source=SOURCE,
        batch_id=batch_id,
        run_id=channel.run_id,
        channel=channel.channel,
        sequence=channel.sequence,
        groups=groups,
        trajectories=len(members),
        steps=sum(member.steps for member in members),
        response_tokens=sum(member.response_tokens for member in members),
        policy_version_min=min(versions, default=None),
        policy_version_max=max(versions, default=None),
        reason=reason,
        details={"rules": rules.digest},
    )
    after = replace(
        channel,
        sequence=channel.sequence + 1,
        last_batch=(*channel.last_batch, *(entry.group_id for entry in taken)),
        unconsumed=(*channel.unconsumed, batch_id) if rules.batch.max_unconsumed else (),
    )
    return after, [batched(entry, log_ms) for entry in taken], event


def batched(entry: GroupEntry, log_ms: int) -> GroupEntry:
    """The entry of a group that was released."""
    return replace(entry, status="batched", since_ms=log_ms, group=None)


def stale(entry: GroupEntry, log_ms: int) -> GroupEntry:
    """The entry of a group that waited too long."""
    return replace(entry, status="stale", since_ms=log_ms, group=None)


def without(channel: ChannelState, dropped: Sequence[GroupEntry]) -> ChannelState:
    """The channel once groups that went stale are no longer waiting in it."""
    named = tuple((entry.group_id, entry.version) for entry in dropped)
    return replace(channel, last_stale=(*channel.last_stale, *named))


def next_record(channel: ChannelState) -> ChannelState:
    """The channel as a record finds it: all that the one before decided is written by then."""
    return replace(channel, last_batch=(), last_stale=())


def repaired(channel: ChannelState, known: Mapping[str, GroupEntry], log_ms: int) -> list[GroupEntry]:
    """Entries as the channel's last decision left them, where they were not written themselves."""
    repairs = []
    for group_id in channel.last_batch:
        entry = known.get(group_id) or _unknown(channel, group_id)
        if entry.status != "batched":
            repairs.append(batched(entry, log_ms))
    for group_id, version in channel.last_stale:
        entry = known.get(group_id) or _unknown(channel, group_id)
        if entry.version < version or (entry.version == version and entry.status == "pending"):
            repairs.append(replace(stale(entry, log_ms), version=version))
    return repairs


def is_named(channel: ChannelState, group_id: str) -> bool:
    """True where `repaired` asks for the group, so that its entry must stay."""
    return group_id in channel.last_batch or any(group_id == name for name, _ in channel.last_stale)


def _unknown(channel: ChannelState, group_id: str) -> GroupEntry:
    """An entry for a group whose own was never written."""
    return GroupEntry(
        run_id=channel.run_id,
        channel=channel.channel,
        status="pending",
        version=0,
        arrival=0,
        since_ms=0,
        group_id=group_id,
    )


def consumed(channel: ChannelState, batch_id: str) -> ChannelState:
    """The channel once a trainer has the batch; itself where it does not wait for that."""
    if batch_id not in channel.unconsumed:
        return channel
    return replace(channel, unconsumed=tuple(known for known in channel.unconsumed if known != batch_id))


def due_ms(entry: GroupEntry, rules: Rules) -> int | None:
    """Log time at which a waiting group is released short, or another entry forgotten; None: never."""
    if entry.status != "pending":
        return entry.since_ms + rules.closed_ttl_ms
    return entry.since_ms + rules.batch.linger_ms if rules.batch.linger_ms else None
