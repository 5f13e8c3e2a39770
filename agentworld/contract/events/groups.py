"""Topic `groups`: one decision about a group, with its reason."""

from __future__ import annotations

from agentworld.contract.events.base import Event, Json, Outcome, Value
from agentworld.contract.events.training import BatchConsumed, PolicyPublished
from agentworld.contract.events.trajectory_events import ClockTicked


class Place(Value, frozen=True, kw_only=True):
    """Where a record stands in its topic: the claim check for a large payload."""

    topic: str
    """Name without the prefix."""
    partition: int
    offset: int


class GroupMember(Value, frozen=True, kw_only=True):
    """One trajectory of a group, small enough to travel everywhere."""

    trajectory_id: str
    place: Place
    """Its `TrajectorySealed` in `trajectories`."""
    outcome: Outcome
    reward: float | None
    steps: int
    prompt_tokens: int
    """Sum over steps of the whole prompts."""
    response_tokens: int
    """Sum over steps of sampled tokens."""
    policy_version_min: int | None
    policy_version_max: int | None
    sealed_at_ms: int
    clean: bool
    """`IntegrityReport.clean` of the sealed trajectory."""
    rollout_index: int | None = None
    """0 to n-1, where the runner numbers its rollouts."""
    policy: str = "default"
    """Name of the policy it sampled from: its versions count in that policy's history."""


class GroupDecision(Event, frozen=True, kw_only=True):
    """What every decision on a group says."""

    group_id: str
    run_id: str
    channel: str
    round: int
    prompt_id: str
    rollouts: int
    version: int
    """1 for the first decision; each revision counts on."""
    members: list[GroupMember]
    """By rollout index, then by trajectory id."""
    reason: str
    decided_by: str
    """Name of the policy, rule, evaluator or person that decided."""
    details: Json = {}
    """The values that decided."""


class GroupReady(GroupDecision, frozen=True, kw_only=True, tag="group_ready"):
    """All n rollouts are sealed and nothing speaks against training on them."""


class GroupPartial(GroupDecision, frozen=True, kw_only=True, tag="group_partial"):
    """Released with fewer than n rollouts, as the run's policy allows."""


class GroupHeld(GroupDecision, frozen=True, kw_only=True, tag="group_held"):
    """Waits for a verdict."""


class GroupRejected(GroupDecision, frozen=True, kw_only=True, tag="group_rejected"):
    """Will not reach training."""


class GroupExpired(GroupDecision, frozen=True, kw_only=True, tag="group_expired"):
    """Its deadline passed before n rollouts were sealed."""


class GroupRevised(GroupDecision, frozen=True, kw_only=True, tag="group_revised"):
    """A reward or member changed after the group was decided."""


class RolloutWanted(Event, frozen=True, kw_only=True, tag="rollout_wanted"):
    """A rollout was lost, and its group asks whoever runs the recipe for another."""

    group_id: str
    run_id: str
    channel: str
    round: int
    prompt_id: str
    rollouts: int
    replaces_trajectory_id: str
    """To be named by the registration of the replacement."""
    attempt: int
    """1 for the group's first replacement; each further one counts on."""
    reason: str


class RolloutsConflicted(Event, frozen=True, kw_only=True, tag="rollouts_conflicted"):
    """A trajectory was registered with another n than its group has; the group's stays."""

    group_id: str
    run_id: str
    channel: str
    round: int
    prompt_id: str
    trajectory_id: str
    rollouts: int
    """The group's n, from its first trajectory."""
    conflicting_rollouts: int


GroupEvent = (
    GroupReady
    | GroupPartial
    | GroupHeld
    | GroupRejected
    | GroupExpired
    | GroupRevised
    | RolloutWanted
    | RolloutsConflicted
    | BatchConsumed
    | PolicyPublished
    | ClockTicked
)
"""`BatchConsumed` and `PolicyPublished` are repeated here, so that one log decides what is batched."""
