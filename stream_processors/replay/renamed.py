"""A run's events under another run's name. Pure, and the same for equal input."""

from __future__ import annotations

import msgspec

from agentworld.contract.events import (
    RewardAssigned,
    StepCaptured,
    TrajectoryCompleted,
    TrajectoryRegistered,
    TrajectoryRevised,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.ids import derived_id, group_id

replace = msgspec.structs.replace

OfTrajectory = RewardAssigned | StepCaptured | TrajectoryCompleted
"""Events that know their trajectory alone: the registration says which run they belong to."""


class Renaming:
    """Names of a replayed run. Groups are those of the new run; step ids stay: a step was sampled once."""

    def __init__(self, run_id: str, into: str) -> None:
        self.run_id = run_id
        self.into = into
        self._groups: dict[str, str] = {}

    def trajectory_id(self, trajectory_id: str) -> str:
        """The id under which a trajectory is assembled again."""
        return derived_id("replayed_trajectory", self.into, trajectory_id)

    def registered(self, event: TrajectoryRegistered) -> TrajectoryRegistered:
        """The registration in the new run; its metadata names what it repeats."""
        return replace(
            event,
            run_id=self.into,
            group_id=self._group(event),
            trajectory_id=self.trajectory_id(event.trajectory_id),
            parent_trajectory_id=self._other(event.parent_trajectory_id),
            replaces_trajectory_id=self._other(event.replaces_trajectory_id),
            metadata=event.metadata
            | {"replay_of": {"run_id": self.run_id, "trajectory_id": event.trajectory_id}},
        )

    def of_trajectory(self, event: OfTrajectory) -> OfTrajectory:
        """A step, reward or completion in the new run."""
        return replace(event, trajectory_id=self.trajectory_id(event.trajectory_id))

    def sealed(self, event: TrajectorySealed) -> TrajectorySealed:
        """The seal as a member of the new run's group. The trajectory keeps its id: it is the same record."""
        return replace(event, run_id=self.into, group_id=self._group(event))

    def knows(self, group_id: str) -> bool:
        """Whether a trajectory of this group of the old run was renamed."""
        return group_id in self._groups

    def revised(self, event: TrajectoryRevised) -> TrajectoryRevised:
        """The revision of such a trajectory. Its group must be known."""
        return replace(event, run_id=self.into, group_id=self._groups[event.group_id])

    def verdict(self, event: VerdictGiven, *, assembled: bool = False) -> VerdictGiven:
        """The verdict on the new run's group, which must be known."""
        trajectory_id = event.trajectory_id
        if assembled and trajectory_id is not None:
            trajectory_id = self.trajectory_id(trajectory_id)
        return replace(event, group_id=self._groups[event.group_id], trajectory_id=trajectory_id)

    def _other(self, trajectory_id: str | None) -> str | None:
        return None if trajectory_id is None else self.trajectory_id(trajectory_id)

    def _group(self, event: TrajectoryRegistered | TrajectorySealed) -> str:
        new = group_id(self.into, event.channel, event.round, event.prompt_id)
        self._groups[event.group_id] = new
        return new
