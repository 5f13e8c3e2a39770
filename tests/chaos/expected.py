"""What the clients know: which answers they got, and which group each rollout belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Rollout:
    """One rollout as its client saw it."""

    trajectory_id: str
    prompt_id: str
    run_id: str
    group_id: str
    rollouts: int
    """n of its group."""
    registered: bool = False
    """The registration was answered."""
    answered: list[str] = field(default_factory=list)
    """Step ids of the answers it got, in order."""
    completed: bool = False
    """The completion was answered."""


@dataclass
class Expected:
    """Everything that was answered in one phase."""

    run_id: str
    rollouts: list[Rollout] = field(default_factory=list)

    @property
    def groups(self) -> set[str]:
        """Group ids."""
        return {rollout.group_id for rollout in self.rollouts}

    @property
    def answers(self) -> int:
        """Answered model calls."""
        return sum(len(rollout.answered) for rollout in self.rollouts)
