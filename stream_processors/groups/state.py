"""State of one group: its members so far, the verdicts on it, and what was decided."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.contract.events import GroupMember, VerdictGiven
from stream_processors.curation import Judgement, MemberFacts

Basis = Literal["open", "complete", "partial", "expired"]
"""How the waiting ended: all n are there, enough at the deadline, or given up."""

GroupVerdict = Literal["open", "ready", "partial", "held", "rejected", "expired"]


class Member(msgspec.Struct, frozen=True):
    """A sealed trajectory and what became known of it since."""

    member: GroupMember
    facts: MemberFacts
    revision: int = 0
    """Of its newest `TrajectoryRevised`."""
    lost: bool = False
    """A replacement was asked for: it counts only if none comes until the deadline."""


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
    """By rollout index, then by trajectory id."""
    surplus: tuple[str, ...] = ()
    """Trajectory ids beyond n."""
    replaced: tuple[str, ...] = ()
    """Trajectory ids whose replacement was sealed."""
    refills: int = 0
    """Replacements asked for."""
    conflicts: tuple[str, ...] = ()
    """Trajectory ids that were registered with another n."""
    verdicts: tuple[VerdictGiven, ...] = ()
    """The newest of each giver, on the group and on each trajectory."""
    policy_versions: dict[str, int] | None = None
    """Newest published version by policy when the waiting ended; None while it has not."""
    basis: Basis = "open"
    basis_reason: str = ""
    judgement: Judgement | None = None
    """Of the rules. Asked again until the group is released, and not after: it may be in a batch."""
    verdict: GroupVerdict = "open"
    decided_by: str = ""
    version: int = 0
    """Of the last decision or revision; 0 while open."""
    decided_at_ms: int = 0
    """Log time of the last decision."""

    def has(self, trajectory_id: str) -> bool:
        """True where the trajectory is known here, as a member or as one that does not count."""
        return trajectory_id in (*self.surplus, *self.replaced) or any(
            known.member.trajectory_id == trajectory_id for known in self.members
        )


class EarlyVerdict(msgspec.Struct, frozen=True):
    """A verdict on a group that is not known yet, or no longer."""

    event: VerdictGiven
    offset: int
    """In `trajectories`."""
    since_ms: int
    """Log time."""


encode_state = msgspec.json.Encoder().encode
decode_state = msgspec.json.Decoder(GroupState).decode
decode_early = msgspec.json.Decoder(tuple[EarlyVerdict, ...]).decode
