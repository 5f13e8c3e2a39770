"""Bodies of the control routes. Field names are Claw-R1's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentworld.contract.events import Outcome
from agentworld.contract.events.trajectory_events import Decision

Id = Annotated[int, Field(ge=0, le=2**32 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Body(BaseModel):
    """A request body; fields not named here are ignored."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Initialised(BaseModel):
    """A fresh trajectory id and where its calls go."""

    trajectory_uid: str
    base_url: str


class Status(BaseModel):
    """Done, and durable."""

    status: str = "ok"


class Decided(BaseModel):
    """The verdict is durable."""

    status: str = "ok"
    group_id: str


class Registration(Body):
    """A rollout begins."""

    channel: str = "train"
    metadata: dict[str, Any] | None = None
    """Travels to the trainer. `n_rollouts`, `run_id`, `round`, `rollout_index` and `policy` also place
    the trajectory in its group; with `raw_content` chat calls are answered with the sampled text as it
    is, tool calls unparsed."""


class Completion(Body):
    """A rollout is over."""

    reward: Finite | None = None
    outcome: Outcome = "succeeded"
    reason: str = Field(default="", max_length=10_000)
    channel: str = "train"


class Reward(Body):
    """A reward for the trajectory, or for the step named."""

    value: Finite
    name: str = "reward"
    step_id: str | None = Field(default=None, max_length=128)
    version: int = Field(default=1, ge=1, lt=2**31)
    """A higher version replaces the lower."""
    given_by: str = Field(default="", max_length=256)
    extra: dict[str, Any] | None = None


class Failed(Body):
    """A rollout came to nothing."""

    reason: str = Field(default="", max_length=10_000)
    outcome: Literal["failed", "abandoned", "errored"] = "errored"
    """`errored`: the rollout broke. `failed`: it ended, the task did not. `abandoned`: it was given up."""


class Verdict(Body):
    """A decision on whether a trajectory, or its whole group, may train."""

    decision: Decision
    whole_group: bool = False
    """Decide on the group that the trajectory belongs to."""
    group_id: str | None = Field(default=None, min_length=1, max_length=128)
    """The group; default: that of `round` in the trajectory's run and channel."""
    round: int = Field(default=0, ge=0, lt=2**31)
    given_by_kind: Literal["rule", "evaluator", "person"] = "person"
    given_by: str = Field(default="", max_length=256)
    """Name of the rule, evaluator or person."""
    reason: str = Field(default="", max_length=10_000)
    value: dict[str, Any] | None = None
    """What decided: the rule's measured value and limit."""


class RewardQuestion(Body):
    """One response to be scored."""

    prompt_ids: list[Id]
    response_ids: list[Id]
    multi_modal_data: Any = None
    num_turns: int = 2
    extra_fields: dict[str, Any] = {}
    dataset_fields: dict[str, Any] = {}


class ComputedReward(BaseModel):
    """The score."""

    reward_score: float
    reward_extra_info: dict[str, Any] = {}


class SubmittedStep(Body):
    """One step that the agent sampled itself, token by token."""

    trajectory_uid: str
    prompt_uid: str
    prompt_ids: list[Id]
    response_ids: list[Id]
    rollout_log_probs: list[Finite] | None = None
    """As many as `response_ids`."""
    reward: Finite | None = None
    step_index: int = Field(default=0, ge=0, lt=2**31)
    policy_version: int | None = Field(default=None, ge=0, lt=2**63)
    is_last: bool = False
    """Completes the trajectory."""
    multi_modal_data: Any = None
    routed_experts: Any = None
    metadata: dict[str, Any] | None = None


class Submission(Body):
    """Steps of one or several trajectories."""

    steps: list[SubmittedStep]


class Accepted(BaseModel):
    """How many steps are durable."""

    accepted: int


class TrajectoryStatus(BaseModel):
    """What the gateway knows of a trajectory."""

    trajectory_id: str
    prompt_id: str
    run_id: str
    channel: str
    policy: str
    state: str
