"""What a run's data must meet: when trajectories are sealed, groups decided, batches released."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Annotated, Literal, Protocol

import msgspec

from agentworld.contract.events import Outcome
from agentworld.contract.topics import TRAJECTORIES
from stream_processors.curation import CurationRule
from stream_processors.evaluators.kinds import AnyEvaluator, evaluator_name

DAY_MS = 24 * 3_600_000

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]

UNFINISHED: frozenset[Outcome] = frozenset({"abandoned", "errored"})
"""Outcomes that are not the agent's word."""

GroupPolicy = Literal["wait", "partial", "drop"]
BatchOrder = Literal["fifo", "freshest", "curriculum"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the rules. All times are log time in milliseconds (see `clock`)."""


class SealRules(Section, frozen=True, kw_only=True):
    """When a trajectory takes no more steps."""

    grace_ms: NotNegative = 2_000
    """After `TrajectoryCompleted`, in which late steps are still taken."""
    idle_timeout_ms: Positive = 600_000
    """Without an event; the trajectory is sealed as abandoned."""
    max_steps: NotNegative = 0
    """Steps at which it is sealed; 0: no limit."""
    max_tokens: NotNegative = 0
    """Sampled tokens, summed over its steps, at which it is sealed; 0: no limit."""


class GroupRules(Section, frozen=True, kw_only=True):
    """When a group is decided."""

    policy: GroupPolicy = "wait"
    """`wait`: for all n. `partial`: at the deadline, release what is there if it is `min_k` or more.
    `drop`: at the deadline, give the group up."""
    deadline_ms: NotNegative = DAY_MS
    """After the group's first seal. Under `wait` it bounds what a lost rollout can hold up; 0: never."""
    min_k: Positive = 1
    """Least trajectories of a group that `partial` releases."""
    refill_outcomes: tuple[Outcome, ...] = ()
    """Outcomes of a rollout for which a replacement is asked; e.g. `["abandoned", "errored"]`."""
    max_refills: NotNegative = 0
    """Most replacements that one group asks for."""
    rollouts: NotNegative = 0
    """n, whatever the registrations say (for replays); 0: as registered."""
    hold_timeout_ms: NotNegative = 7 * DAY_MS
    """For which a held group waits for a verdict before it expires; 0: for ever."""

    def __post_init__(self) -> None:
        """Refuse what could never be met."""
        if self.policy != "wait" and not self.deadline_ms:
            raise ValueError(f"policy {self.policy} needs a deadline_ms over 0")
        if bool(self.refill_outcomes) != bool(self.max_refills):
            raise ValueError("refill_outcomes and max_refills go together: set both, or neither")


class RewardRules(Section, frozen=True, kw_only=True):
    """Which reward trains."""

    names: tuple[str, ...] = ("reward",)
    """Named rewards by precedence: the first that a trajectory has trains."""
    required: bool = False
    """Whether a group waits until each rollout that ended by the agent's word has its reward."""
    unfinished: float | None = None
    """Reward of an abandoned or errored rollout that was given none."""


class BatchRules(Section, frozen=True, kw_only=True):
    """How groups leave for training."""

    groups: Positive = 8
    """Groups in a full batch."""
    linger_ms: NotNegative = 0
    """After which a waiting group is released in a short batch; 0: never short."""
    order: BatchOrder = "fifo"
    """`fifo`: as they became ready. `freshest`: newest policy version first. `curriculum`: by mean reward."""
    hardest_first: bool = False
    """`curriculum` begins with the lowest mean reward instead of the highest."""
    max_policy_lag: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Versions that a group's oldest step may be behind when its batch leaves; -1: no limit."""
    max_unconsumed: NotNegative = 0
    """Batches of a run and channel that may wait for their trainer; 0: no limit."""


class Rules(Section, frozen=True, kw_only=True, dict=True):
    """All that a decision depends on beside the log; the same log under equal rules gives equal bytes."""

    seal: SealRules = SealRules()
    group: GroupRules = GroupRules()
    reward: RewardRules = RewardRules()
    batch: BatchRules = BatchRules()
    curation: tuple[CurationRule, ...] = ()
    """Asked in this order once a group is complete."""
    evaluators: tuple[AnyEvaluator, ...] = msgspec.field(default=(), name="evaluator")
    """What rewards and judges sealed trajectories, beside the processors: `stream_processors.evaluators`."""
    closed_ttl_ms: Positive = 6 * 3_600_000
    """For which what was sealed, decided or batched is remembered, so that a redelivery changes nothing
    and late events are told apart. Longer than any redelivery."""
    max_sealed_bytes: Positive = TRAJECTORIES.max_message_bytes - 64 * 1024
    """Longest encoded `TrajectorySealed`; the rest of the topic's limit is for headers and framing."""

    def __post_init__(self) -> None:
        """Refuse evaluators whose answers could not be told apart."""
        names = [evaluator_name(evaluator) for evaluator in self.evaluators]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(
                f"several evaluators are named {', '.join(sorted(twice))}: give each its own name"
            )

    @cached_property
    def digest(self) -> str:
        """`sha256:<hex>` of the rules as JSON; equal rules have equal digests.

        Without the evaluators: what they said stands in the log.
        """
        decisive = msgspec.structs.replace(self, evaluators=())
        return f"sha256:{hashlib.sha256(msgspec.json.encode(decisive)).hexdigest()}"

    def of(self, run_id: str, channel: str) -> Rules:
        """The same for every run: rules alone are a rule book with one page."""
        return self


class RuleSource(Protocol):
    """Gives each run its rules: a `RuleBook`, or `Rules` for all."""

    def of(self, run_id: str, channel: str) -> Rules:
        """The rules of a run's channel; `("", "")` for what has not been registered."""
        ...
