"""Topic `trajectories`: sealed rollouts, whole and in order."""

from __future__ import annotations

from typing import Literal

from agentworld.contract.events.base import Event, Json, Outcome, Value
from agentworld.contract.events.training import PolicyPublished
from agentworld.contract.events.trajectory_events import ClockTicked, StepCaptured, VerdictGiven

SealReason = Literal["completed", "idle_timeout", "max_steps", "max_tokens", "max_bytes"]

StepRelation = Literal["root", "extends", "rewritten", "sub_agent", "side_call"]


class Reward(Value, frozen=True, kw_only=True):
    """The newest version of one named reward."""

    name: str
    value: float
    step_id: str | None
    version: int
    given_by: str = ""
    extra: Json = {}


class SealedStep(Value, frozen=True, kw_only=True):
    """A step in its place."""

    step_index: int
    """0-based place in the trajectory: by request start, and after the step whose response it holds."""
    step: StepCaptured
    relation: StepRelation = "root"
    """How the prompt relates to its parent: `extends` begins with all of its prompt and response ids."""
    superseded: bool = False
    """Retried by its client: kept, not trained."""
    parent_step_id: str | None = None
    """The step it goes on from, rewrites or runs beside; `prompt.base_step_id` only saves bytes."""


class Branch(Value, frozen=True, kw_only=True):
    """One way through a conversation: from the step that opened it to one that nothing continues."""

    tip_step_id: str
    """Its last step; the others are found by `parent_step_id`."""
    opened_as: StepRelation
    """Relation of its first step: `root` for the rollout's own conversation."""
    steps: int


class TrainedBranch(Value, frozen=True, kw_only=True):
    """The branch that trains, and why it does."""

    tip_step_id: str
    steps: int
    rule: str
    """Name of the rule that chose it."""
    reason: str


class IntegrityReport(Value, frozen=True, kw_only=True):
    """What is known to be wrong with a trajectory; all zero is a clean one."""

    duplicate_events: int = 0
    missing_bases: list[str] = []
    """Step ids named as a base and never captured."""
    steps_not_ok: int = 0
    steps_without_ids: int = 0
    steps_misaligned: int = 0
    """Ids and logprobs of different lengths."""
    omitted_steps: int = 0
    """Steps left out because the event would have exceeded the topic's message limit."""
    gaps: dict[str, int] = {}
    """Steps by what is missing of them: `missing_base`, `failed`, `cancelled`, `timed_out`, `malformed`,
    `truncated` (the engine stopped at a length limit). Kinds that did not occur are absent."""

    @property
    def clean(self) -> bool:
        """True where every step can be trusted."""
        return not (
            self.missing_bases
            or self.steps_not_ok
            or self.steps_without_ids
            or self.steps_misaligned
            or self.omitted_steps
        )


class TrajectorySealed(Event, frozen=True, kw_only=True, tag="trajectory_sealed"):
    """No more steps are accepted; here they are, ordered, delta-encoded, checked."""

    trajectory_id: str
    prompt_id: str
    group_id: str
    run_id: str
    channel: str
    round: int
    rollouts: int
    rollout_index: int | None
    policy: str
    outcome: Outcome
    outcome_reason: str
    seal_reason: SealReason
    registered_at_ms: int
    steps: list[SealedStep]
    """May be empty: a rollout without a call still resolves its group."""
    rewards: list[Reward]
    reward: float | None
    """The reward that trains: newest version of the run's configured name; none if not given."""
    integrity: IntegrityReport
    parent_trajectory_id: str | None = None
    replaces_trajectory_id: str | None = None
    metadata: Json = {}
    branches: list[Branch] = []
    """Every branch but those of superseded steps, by the place of its last step."""
    trained_branch: TrainedBranch | None = None
    """None where the main conversation has no answered step."""


class TrajectoryRevised(Event, frozen=True, kw_only=True, tag="trajectory_revised"):
    """A reward came or changed, or a step came, after the seal."""

    trajectory_id: str
    prompt_id: str
    group_id: str
    run_id: str
    channel: str
    rewards: list[Reward]
    reward: float | None
    revision: int
    """1, 2, …: how many times it was revised."""
    late_steps: int = 0
    """Steps that came after the seal; each is in the dead-letter topic."""


TrajectoriesEvent = TrajectorySealed | TrajectoryRevised | VerdictGiven | PolicyPublished | ClockTicked
"""`VerdictGiven` and `PolicyPublished` are repeated here, so that one log decides about a group."""
