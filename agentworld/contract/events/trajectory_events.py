"""Topic `trajectory-events`: what happened to a rollout, in the words of who saw it."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.contract.events.base import (
    Event,
    Json,
    LogProb,
    Outcome,
    PromptDelta,
    RawJson,
    TokenId,
    TokenSource,
    Value,
)

StepStatus = Literal["ok", "cancelled", "failed", "timed_out", "malformed"]
"""`ok`: the client had the whole answer. The others are captured, and never trained on."""

Decision = Literal["accept", "reject", "hold"]


class TrajectoryRegistered(Event, frozen=True, kw_only=True, tag="trajectory_registered"):
    """A rollout began. Carries what its steps do not: run, channel, round and n."""

    trajectory_id: str
    prompt_id: str
    run_id: str
    channel: str
    round: int
    """Which repetition of the task within the run, from 0."""
    rollouts: int
    """n: how many trajectories the group waits for, failed ones included."""
    group_id: str
    rollout_index: int | None = None
    """0 to n-1, where the runner numbers its rollouts."""
    policy: str = "default"
    """Name of the policy that the rollout samples from."""
    parent_trajectory_id: str | None = None
    replaces_trajectory_id: str | None = None
    """The abandoned rollout this one stands in for."""
    registered_by: Literal["client", "gateway"] = "client"
    """`gateway`: implied by a first call (online mode)."""
    metadata: Json = {}
    """Travels to the trainer beside the trajectory (`data_source`, `reward_model`, …)."""


class StepRequest(Value, frozen=True, kw_only=True):
    """How the client asked."""

    protocol: Literal["chat_completions", "responses", "messages", "completions", "generate", "submitted"]
    model: str
    """The model name in the request."""
    stream: bool
    sampling: Json = {}
    """Sampling parameters as sent (temperature, top_p, max_tokens, stop, seed, tool_choice, …)."""
    fingerprint: str = ""
    """SHA-256 of the request body: an SDK's retry has its first attempt's."""
    retry_count: int | None = None
    client: str = ""
    """User-Agent."""
    client_ids: dict[str, str] = {}
    """The client's own conversation ids, by header or field name."""


class EngineCall(Value, frozen=True, kw_only=True):
    """Which engine answered, and with which weights."""

    engine: str
    """Configured name of the upstream."""
    model: str = ""
    """Model name in the reply."""
    request_id: str = ""
    """The engine's id of the completion."""
    policy: str = "default"
    policy_version_start: int | None = None
    """Version when the call began: the engine's word, else the gateway's view; none if unknown."""
    policy_version_end: int | None = None
    """Version when it ended: differs where weights changed during the call."""
    logprobs_mode: str = ""
    """What distribution the logprobs are of (vLLM's `--logprobs-mode`), where known."""


class Continuation(Value, frozen=True, kw_only=True):
    """Whether the prompt begins with exactly the ids that an earlier step sampled."""

    step_id: str | None = None
    """The step continued: the prompt's first ids are its prompt and response. None: rendered anew."""
    kept_tokens: int = 0
    """How many ids those are."""
    drifted: bool = False
    """Whether the template alone would have put other ids in their place."""
    declined: str = ""
    """Why the prompt was rendered anew: `history_rendered_anew`, `no_step_extended`, …"""


class StepError(Value, frozen=True, kw_only=True):
    """Why a step is not `ok`."""

    code: str
    message: str
    http_status: int | None = None


class StepCaptured(Event, frozen=True, kw_only=True, tag="step_captured"):
    """One model call: prompt, sampled response and everything needed to train on it."""

    step_id: str
    """UUIDv7 minted when the request arrived; the event's identity for deduplication."""
    trajectory_id: str
    prompt_id: str
    status: StepStatus
    request: StepRequest
    prompt: PromptDelta
    response_ids: list[TokenId]
    """Sampled token ids, in order, as the engine returned them."""
    response_logprobs: list[LogProb]
    """Log-probability of each sampled token; same length as `response_ids`."""
    message: RawJson = msgspec.UNSET
    """The sampled turn as a canonical chat message; absent where nothing was sampled."""
    finish_reason: str | None
    token_source: TokenSource
    engine: EngineCall
    started_at_ms: int
    """Unix ms at which the request arrived. Steps are ordered by it, then by `step_id`."""
    latency_ms: float
    """Request arrival to the end of the engine's answer."""
    first_token_ms: float | None = None
    """Request arrival to the first sampled text; streaming only."""
    choice_index: int = 0
    """Which of a request's n choices; each is a step of its own."""
    engine_response_tokens: int | None = None
    """The engine's own count (`usage.completion_tokens`)."""
    cached_tokens: int | None = None
    """Prompt tokens served from the engine's prefix cache."""
    integrity: list[str] = []
    """Named checks that failed: `logprobs_missing`, `length_mismatch`, `ids_missing`, …"""
    trainable: bool = True
    """False for frozen models and for steps whose tokens cannot be trusted."""
    error: StepError | None = None
    client_message: RawJson = msgspec.UNSET
    """The turn as the client saw it, where it differs from `message`."""
    continuation: Continuation | None = None
    """None where the engine is not asked to continue from ids, and for a trajectory's first prompt."""
    extras: Json = {}
    """Engine data that belongs to the step (`routed_experts`, `multi_modal_data` references)."""
    metadata: Json = {}


class TrajectoryCompleted(Event, frozen=True, kw_only=True, tag="trajectory_completed"):
    """The agent says its rollout is over; late steps get a grace period."""

    trajectory_id: str
    prompt_id: str
    outcome: Outcome
    reason: str = ""


class RewardAssigned(Event, frozen=True, kw_only=True, tag="reward_assigned"):
    """A reward for a trajectory, or for one of its steps."""

    trajectory_id: str
    prompt_id: str
    value: float
    name: str = "reward"
    """Which reward: a run's rules say which name trains."""
    step_id: str | None = None
    """None: for the whole trajectory."""
    version: int = 1
    """A higher version of the same name and step replaces the lower."""
    given_by: str = ""
    extra: Json = {}


class VerdictGiven(Event, frozen=True, kw_only=True, tag="verdict_given"):
    """A rule, evaluator or person decided whether a group or trajectory may train."""

    prompt_id: str
    group_id: str
    decision: Decision
    trajectory_id: str | None = None
    """None: the verdict is on the whole group."""
    given_by_kind: Literal["rule", "evaluator", "person"] = "person"
    given_by: str = ""
    """Name of the rule, evaluator or person."""
    reason: str = ""
    value: Json = {}
    """What decided: the rule's measured value and limit."""


class ClockTicked(Event, frozen=True, kw_only=True, tag="clock_ticked"):
    """Carries time forward in one partition while something there is open."""

    partition: int


TrajectoryEvent = (
    TrajectoryRegistered | StepCaptured | TrajectoryCompleted | RewardAssigned | VerdictGiven | ClockTicked
)
