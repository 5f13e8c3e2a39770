"""State of one run's channel: groups that wait, groups that were batched, the next number."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.contract.events import BatchGroup

EntryStatus = Literal["pending", "batched", "withdrawn", "stale"]


class ChannelState(msgspec.Struct, frozen=True, tag="channel"):
    """Counts the batches of one run and channel."""

    run_id: str
    channel: str
    sequence: int = 0
    """Of the next batch."""
    arrivals: int = 0
    """Groups that ever became ready: numbers them in order of readiness."""
    last_batch: tuple[str, ...] = ()
    """Group ids of what the last record released. Written first, so that a decision cut off half-way is
    repaired."""
    last_stale: tuple[tuple[str, int], ...] = ()
    """Groups, and their versions, that went stale by the last record that released or dropped any."""
    unconsumed: tuple[str, ...] = ()
    """Batch ids that the trainer has not taken, where the run limits how many there may be."""


class GroupEntry(msgspec.Struct, frozen=True, tag="group"):
    """One group of the channel."""

    run_id: str
    channel: str
    status: EntryStatus
    version: int
    """Of the group's last event that counted here."""
    arrival: int
    """Its place in the order of readiness."""
    since_ms: int
    """Log time at which it got its status."""
    group_id: str
    group: BatchGroup | None = None
    """While pending."""
    closed_at: int = 0
    """Offset of the record by which it stopped waiting."""
    exempt: bool = False
    """A person released it: it does not go stale."""


encode_state = msgspec.json.Encoder().encode
decode_channel = msgspec.json.Decoder(ChannelState).decode
decode_entry = msgspec.json.Decoder(GroupEntry).decode
