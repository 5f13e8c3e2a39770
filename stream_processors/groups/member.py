"""A sealed trajectory, summed up as a member of its group."""

from __future__ import annotations

from agentworld.contract.events import GroupMember, Place, TrajectorySealed


def member_of(sealed: TrajectorySealed, place: Place) -> GroupMember:
    """The member that stands for `sealed`, which stands at `place`."""
    steps = [entry.step for entry in sealed.steps]
    versions = [
        version
        for step in steps
        for version in (step.engine.policy_version_start, step.engine.policy_version_end)
        if version is not None
    ]
    return GroupMember(
        trajectory_id=sealed.trajectory_id,
        place=place,
        outcome=sealed.outcome,
        reward=sealed.reward,
        steps=len(steps),
        prompt_tokens=sum(step.prompt.prompt_tokens for step in steps),
        response_tokens=sum(len(step.response_ids) for step in steps),
        policy_version_min=min(versions, default=None),
        policy_version_max=max(versions, default=None),
        sealed_at_ms=sealed.event_time_ms,
        clean=sealed.integrity.clean,
    )
