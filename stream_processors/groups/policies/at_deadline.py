"""The answer of a group policy."""

from __future__ import annotations

from typing import Literal, NamedTuple


class AtDeadline(NamedTuple):
    """What becomes of the group, and why."""

    basis: Literal["partial", "expired"]
    reason: str


def sealed_in_time(counted: int, rollouts: int, deadline_ms: int) -> str:
    """The fact that every policy begins with."""
    return f"{counted} of {rollouts} trajectories were sealed within {deadline_ms} ms of log time"
