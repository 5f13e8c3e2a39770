"""The seal: an open trajectory and its steps become one event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from agentworld.contract.codec import record_headers
from agentworld.contract.events import (
    DirectoryUpdated,
    Outcome,
    StepCaptured,
    TrajectoryRegistered,
    TrajectoryRevised,
    TrajectorySealed,
)
from agentworld.contract.events.trajectories import SealReason
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_DIRECTORY, TRAJECTORY_EVENTS
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import OutRecord, Record
from stream_processors.rewards import training_reward
from stream_processors.rules import Rules
from stream_processors.trajectories import integrity
from stream_processors.trajectories.state import (
    ClosedTrajectory,
    OpenTrajectory,
    StoredStep,
    published_rewards,
    step_digests,
)
from stream_processors.trajectories.tree import branches_of, drift, placed_steps, trained_branch

SOURCE = "stream-processors.trajectory"

_step_decoder = msgspec.json.Decoder(StepCaptured)


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where a decision is made."""

    partition: int
    event_time_ms: int
    """Event time of the record that brought it about, Unix ms."""
    log_ms: int
    """Log time."""


def seal(
    trajectory: OpenTrajectory,
    registration: TrajectoryRegistered,
    stored: Mapping[str, StoredStep],
    *,
    reason: SealReason,
    at: Moment,
    rules: Rules,
) -> tuple[ClosedTrajectory, list[OutRecord], Counter[str]]:
    """Seal a registered trajectory. Gives its new state, the outputs, and the sealed steps by class.

    Where the event would exceed `max_sealed_bytes` it carries no steps, its outcome is `errored`
    and each step goes to the dead-letter topic.
    """
    steps = [_step_decoder.decode(step.value) for step in stored.values()]
    steps.sort(key=lambda step: (step.started_at_ms, step.step_id))
    sealed = _event(trajectory, registration, steps, reason=reason, at=at, rules=rules)
    record = OutRecord.of(TRAJECTORIES, sealed)
    letters: list[OutRecord] = []
    if len(record.value) > rules.max_sealed_bytes:
        detail = (
            f"{len(steps)} steps take {len(record.value)} bytes, over the {rules.max_sealed_bytes} allowed"
        )
        sealed = msgspec.structs.replace(
            sealed,
            steps=[],
            branches=[],
            trained_branch=None,
            outcome="errored",
            outcome_reason=f"trajectory too large: {detail}",
            seal_reason="max_bytes",
            integrity=msgspec.structs.replace(sealed.integrity, omitted_steps=len(steps)),
        )
        record = OutRecord.of(TRAJECTORIES, sealed)
        letters = [
            step_letter(step, stored[step.step_id], "trajectory_too_large", detail, at.partition)
            for step in steps
        ]
    closed = ClosedTrajectory(
        trajectory_id=trajectory.trajectory_id,
        registration=msgspec.structs.replace(registration, metadata={}),
        step_digests=step_digests(step.step_id for step in steps),
        rewards=trajectory.rewards,
        reward=sealed.reward,
        revision=0,
        closed_at_ms=at.log_ms,
        completion_id=trajectory.completion.event_id if trajectory.completion else None,
        outcome=sealed.outcome,
    )
    return closed, [record, *letters, _directory_entry(registration, at)], drift(sealed.steps)


def revised(closed: ClosedTrajectory, at: Moment) -> OutRecord:
    """The event that says what the trajectory's rewards are now, and what came too late."""
    registration = closed.registration
    event = TrajectoryRevised(
        event_id=derived_id("trajectory_revised", closed.trajectory_id, closed.revision),
        event_time_ms=at.event_time_ms,
        source=SOURCE,
        trajectory_id=closed.trajectory_id,
        prompt_id=registration.prompt_id,
        group_id=registration.group_id,
        run_id=registration.run_id,
        channel=registration.channel,
        rewards=published_rewards(closed.rewards),
        reward=closed.reward,
        revision=closed.revision,
        late_steps=closed.late_steps,
    )
    return OutRecord.of(TRAJECTORIES, event)


def step_letter(
    step: StepCaptured, stored: StoredStep, reason: str, detail: str, partition: int
) -> OutRecord:
    """The dead letter of a step that waited for its seal."""
    record = Record(
        topic=TRAJECTORY_EVENTS.name,
        partition=partition,
        offset=stored.offset,
        key=step.prompt_id.encode(),
        value=stored.value,
        headers=tuple(record_headers(step)),
        timestamp_ms=step.event_time_ms,
    )
    return dead_letter(record, reason=reason, detail=detail, consumer=SOURCE)


def decode_step(stored: StoredStep) -> StepCaptured:
    """The step that waits."""
    return _step_decoder.decode(stored.value)


def _event(
    trajectory: OpenTrajectory,
    registration: TrajectoryRegistered,
    steps: Sequence[StepCaptured],
    *,
    reason: SealReason,
    at: Moment,
    rules: Rules,
) -> TrajectorySealed:
    placed = placed_steps(steps)
    outcome, outcome_reason = _outcome(trajectory, reason, rules)
    return TrajectorySealed(
        event_id=derived_id("trajectory_sealed", trajectory.trajectory_id),
        event_time_ms=at.event_time_ms,
        source=SOURCE,
        trajectory_id=trajectory.trajectory_id,
        prompt_id=registration.prompt_id,
        group_id=registration.group_id,
        run_id=registration.run_id,
        channel=registration.channel,
        round=registration.round,
        rollouts=registration.rollouts,
        rollout_index=registration.rollout_index,
        policy=registration.policy,
        outcome=outcome,
        outcome_reason=outcome_reason,
        seal_reason=reason,
        registered_at_ms=registration.event_time_ms,
        steps=placed,
        branches=branches_of(placed),
        trained_branch=trained_branch(placed),
        rewards=published_rewards(trajectory.rewards),
        reward=training_reward(trajectory.rewards, rules.reward, outcome),
        integrity=integrity.report(steps),
        parent_trajectory_id=registration.parent_trajectory_id,
        replaces_trajectory_id=registration.replaces_trajectory_id,
        metadata=registration.metadata,
    )


def _outcome(trajectory: OpenTrajectory, reason: SealReason, rules: Rules) -> tuple[Outcome, str]:
    if trajectory.completion is not None:
        return trajectory.completion.outcome, trajectory.completion.reason
    if reason == "max_steps":
        return "errored", f"reached the limit of {rules.seal.max_steps} steps before it was completed"
    if reason == "max_tokens":
        return "errored", f"sampled the limit of {rules.seal.max_tokens} tokens before it was completed"
    return "abandoned", f"no event for {rules.seal.idle_timeout_ms} ms of log time"


def _directory_entry(registration: TrajectoryRegistered, at: Moment) -> OutRecord:
    event = DirectoryUpdated(
        event_id=derived_id("directory_updated", registration.trajectory_id, "sealed"),
        event_time_ms=at.event_time_ms,
        source=SOURCE,
        trajectory_id=registration.trajectory_id,
        prompt_id=registration.prompt_id,
        run_id=registration.run_id,
        channel=registration.channel,
        policy=registration.policy,
        state="sealed",
    )
    return OutRecord.of(TRAJECTORY_DIRECTORY, event)
