"""State of one trajectory: open with its steps beside it, or closed and remembered for a while."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from agentworld.contract.events import (
    Outcome,
    Reward,
    RewardAssigned,
    TrajectoryCompleted,
    TrajectoryRegistered,
)

_STEP_HEAD = struct.Struct(">qq")
_DIGEST_BYTES = 8


class OpenTrajectory(msgspec.Struct, frozen=True, tag="open"):
    """Not yet sealed. Its steps are entries of their own, so that each costs one write."""

    trajectory_id: str
    registration: TrajectoryRegistered | None = None
    """None: events came before their registration and wait for it."""
    completion: TrajectoryCompleted | None = None
    completed_at_ms: int = 0
    """Log time at which the completion was first seen."""
    rewards: tuple[RewardAssigned, ...] = ()
    """The newest per name and step, in order of arrival."""
    last_activity_ms: int = 0
    """Log time of the last event other than a step."""


class ClosedTrajectory(msgspec.Struct, frozen=True, tag="closed"):
    """Sealed; what is needed to know its events again and to revise its reward."""

    trajectory_id: str
    registration: TrajectoryRegistered
    """Without its metadata, which the seal carries."""
    step_digests: bytes
    """8 bytes per step id, of steps that were sealed or dead-lettered as late."""
    rewards: tuple[RewardAssigned, ...]
    reward: float | None
    revision: int
    closed_at_ms: int
    """Log time."""
    completion_id: str | None = None
    """Event id of the completion that counts, or that came too late; None while none came."""
    outcome: Outcome = "succeeded"
    late_steps: int = 0
    """Steps that came after the seal."""


TrajectoryState = OpenTrajectory | ClosedTrajectory

encode_state = msgspec.json.Encoder().encode
decode_state = msgspec.json.Decoder(TrajectoryState).decode


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A captured step as it waits for its seal."""

    offset: int
    """In `trajectory-events`."""
    seen_at_ms: int
    """Log time."""
    value: bytes
    """The record's value: an encoded `StepCaptured`."""

    def pack(self) -> bytes:
        """The table entry: offset, log time, record."""
        return _STEP_HEAD.pack(self.offset, self.seen_at_ms) + self.value

    @classmethod
    def unpack(cls, packed: bytes) -> StoredStep:
        """Undo `pack`."""
        offset, seen_at_ms = _STEP_HEAD.unpack_from(packed)
        return cls(offset=offset, seen_at_ms=seen_at_ms, value=packed[_STEP_HEAD.size :])


def step_digests(step_ids: Iterable[str]) -> bytes:
    """The ids as 8 bytes each."""
    return b"".join(_digest(step_id) for step_id in step_ids)


def has_digest(digests: bytes, step_id: str) -> bool:
    """True where `step_id` is one of those in `digests`."""
    wanted = _digest(step_id)
    return any(
        digests[start : start + _DIGEST_BYTES] == wanted for start in range(0, len(digests), _DIGEST_BYTES)
    )


def _digest(step_id: str) -> bytes:
    return hashlib.blake2b(step_id.encode(), digest_size=_DIGEST_BYTES).digest()


def newest(event: RewardAssigned) -> tuple[int, int, str]:
    """Sort key: the greatest of several rewards of one name and step counts."""
    return event.version, event.event_time_ms, event.event_id


def with_reward(rewards: tuple[RewardAssigned, ...], event: RewardAssigned) -> tuple[RewardAssigned, ...]:
    """`rewards` with `event` in it; the same object where a newer one of its name and step stands."""
    for index, known in enumerate(rewards):
        if (known.name, known.step_id) == (event.name, event.step_id):
            if newest(event) <= newest(known):
                return rewards
            return (*rewards[:index], event, *rewards[index + 1 :])
    return (*rewards, event)


def published_rewards(rewards: Iterable[RewardAssigned]) -> list[Reward]:
    """The rewards as they stand in events, by name and then step."""
    return [
        Reward(
            name=event.name,
            value=event.value,
            step_id=event.step_id,
            version=event.version,
            given_by=event.given_by,
            extra=event.extra,
        )
        for event in sorted(rewards, key=lambda r: (r.name, r.step_id or ""))
    ]
