"""What one event does to one trajectory. Pure; the partition's bookkeeping is in `processor`."""

from __future__ import annotations

import msgspec

from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import (
    RewardAssigned,
    StepCaptured,
    TrajectoryCompleted,
    TrajectoryRegistered,
)
from agentworld.platform.log import OutRecord
from stream_processors.rewards import training_reward
from stream_processors.rules import Rules
from stream_processors.trajectories.seal import Moment, revised
from stream_processors.trajectories.state import (
    ClosedTrajectory,
    OpenTrajectory,
    TrajectoryState,
    has_digest,
    step_digests,
    with_reward,
)

TrajectoryFact = TrajectoryRegistered | StepCaptured | TrajectoryCompleted | RewardAssigned


def advance(
    state: TrajectoryState | None,
    event: TrajectoryFact,
    *,
    at: Moment,
    rules: Rules,
) -> tuple[TrajectoryState, list[OutRecord]]:
    """State and outputs after `event`. Returns `state` itself where the event changes nothing.

    Keeping a step's bytes is the caller's part: a step changes the state only by opening it.
    Raises `MalformedEvent` with reason `prompt_mismatch` for an event that must not count. What
    came after the seal and is new is for `after_seal` to say.
    """
    if isinstance(state, ClosedTrajectory):
        _check_prompt(state.registration, event)
        if isinstance(event, RewardAssigned):
            return _revise(state, event, at, rules)
        return state, []
    trajectory = state or OpenTrajectory(trajectory_id=event.trajectory_id, last_activity_ms=at.log_ms)
    if trajectory.registration is not None:
        _check_prompt(trajectory.registration, event)
    changed = _changed(trajectory, event, at)
    if changed is trajectory or isinstance(event, StepCaptured):
        return changed, []
    return msgspec.structs.replace(changed, last_activity_ms=max(changed.last_activity_ms, at.log_ms)), []


def after_seal(closed: ClosedTrajectory, event: TrajectoryFact) -> tuple[ClosedTrajectory, str] | None:
    """For an event that came too late to count: the trajectory that knows it, and why it is refused.

    None for events that are known already or can still count.
    """
    if isinstance(event, StepCaptured) and not has_digest(closed.step_digests, event.step_id):
        marked = msgspec.structs.replace(
            closed,
            step_digests=closed.step_digests + step_digests([event.step_id]),
            late_steps=closed.late_steps + 1,
            revision=closed.revision + 1,
        )
        return marked, "step_after_seal"
    if isinstance(event, TrajectoryCompleted) and closed.completion_id is None:
        return msgspec.structs.replace(closed, completion_id=event.event_id), "completion_after_seal"
    return None


def due_ms(state: TrajectoryState, last_step_ms: int, rules: Rules) -> int:
    """Log time at which something is to happen without an event: the seal, or being forgotten.

    `last_step_ms` is the log time of the last step, 0 where there is none.
    """
    if isinstance(state, ClosedTrajectory):
        return state.closed_at_ms + rules.closed_ttl_ms
    if state.completion is not None and state.registration is not None:
        return state.completed_at_ms + rules.seal.grace_ms
    return max(state.last_activity_ms, last_step_ms) + rules.seal.idle_timeout_ms


def _changed(trajectory: OpenTrajectory, event: TrajectoryFact, at: Moment) -> OpenTrajectory:
    replace = msgspec.structs.replace
    if isinstance(event, TrajectoryRegistered):
        known = trajectory.registration
        if known is None or _precedence(event) < _precedence(known):
            return replace(trajectory, registration=event)
    elif isinstance(event, TrajectoryCompleted):
        if trajectory.completion is None:
            return replace(trajectory, completion=event, completed_at_ms=at.log_ms)
        if _when(event) < _when(trajectory.completion):
            return replace(trajectory, completion=event)
    elif isinstance(event, RewardAssigned):
        rewards = with_reward(trajectory.rewards, event)
        if rewards is not trajectory.rewards:
            return replace(trajectory, rewards=rewards)
    return trajectory


def _revise(
    closed: ClosedTrajectory, event: RewardAssigned, at: Moment, rules: Rules
) -> tuple[ClosedTrajectory, list[OutRecord]]:
    rewards = with_reward(closed.rewards, event)
    if rewards is closed.rewards:
        return closed, []
    after = msgspec.structs.replace(
        closed,
        rewards=rewards,
        reward=training_reward(rewards, rules.reward, closed.outcome),
        revision=closed.revision + 1,
    )
    return after, [revised(after, at)]


def _when(event: TrajectoryFact) -> tuple[int, str]:
    return event.event_time_ms, event.event_id


def _precedence(event: TrajectoryRegistered) -> tuple[bool, int, str]:
    """Least counts: the client's own word before what a gateway implied, then the earliest."""
    return event.registered_by != "client", event.event_time_ms, event.event_id


def _check_prompt(registration: TrajectoryRegistered, event: TrajectoryFact) -> None:
    if event.prompt_id != registration.prompt_id:
        raise MalformedEvent(
            f"trajectory {event.trajectory_id} was registered for prompt {registration.prompt_id}, "
            f"but this event names prompt {event.prompt_id}",
            reason="prompt_mismatch",
        )
