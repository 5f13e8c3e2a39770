"""State of one group: its members so far, and what was decided."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.contract.events import GroupMember

Verdict = Literal["open", "ready", "expired"]


class Member(msgspec.Struct, frozen=True):
    """A sealed trajectory, and how often its reward was revised."""

    member: GroupMember
    revision: int = 0


class GroupState(msgspec.Struct, frozen=True):
    """One group; decided ones are remembered for a while so that nothing is decided twice."""

    group_id: str
    run_id: str
    channel: str
    round: int
    prompt_id: str
    rollouts: int
    """n, from the first trajectory that was sealed."""
    opened_at_ms: int
    """Log time of the first seal."""
    members: tuple[Member, ...] = ()
    """In the order in which they were sealed."""
    surplus: tuple[str, ...] = ()
    """Trajectory ids beyond n."""
    conflicts: tuple[str, ...] = ()
    """Trajectory ids that were registered with another n."""
    verdict: Verdict = "open"
    version: int = 0
    """Of the last decision or revision; 0 while open."""
    decided_at_ms: int = 0
    """Log time."""

    def has(self, trajectory_id: str) -> bool:
        """True where the trajectory is known here, as a member or as surplus."""
        return trajectory_id in self.surplus or any(
            known.member.trajectory_id == trajectory_id for known in self.members
        )


encode_state = msgspec.json.Encoder().encode
decode_state = msgspec.json.Decoder(GroupState).decode
