"""Topic `groups`: one decision about a group, with its reason."""

from __future__ import annotations

from agentworld.contract.events.base import Event, Json, Outcome, Value
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
    """In the order in which they were sealed."""
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


GroupEvent = GroupReady | GroupPartial | GroupHeld | GroupRejected | GroupExpired | GroupRevised | ClockTicked
