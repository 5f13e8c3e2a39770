"""A sealed trajectory, summed up as a member of its group."""

from __future__ import annotations

import msgspec

from agentworld.contract.events import GroupMember, Place, TrajectoryRevised, TrajectorySealed
from agentworld.platform.resolved import policy_versions
from stream_processors.curation import MemberFacts
from stream_processors.curation.facts import member_facts
from stream_processors.groups.state import Member
from stream_processors.rewards import training_reward
from stream_processors.rules import Rules

replace = msgspec.structs.replace


def member_of(sealed: TrajectorySealed, place: Place, rules: Rules) -> Member:
    """The member that stands for `sealed`, which stands at `place`."""
    steps = [entry.step for entry in sealed.steps]
    versions = policy_versions(steps)
    reward = training_reward(sealed.rewards, rules.reward, sealed.outcome)
    member = GroupMember(
        trajectory_id=sealed.trajectory_id,
        place=place,
        outcome=sealed.outcome,
        reward=reward,
        steps=len(steps),
        prompt_tokens=sum(step.prompt.prompt_tokens for step in steps),
        response_tokens=sum(len(step.response_ids) for step in steps),
        policy_version_min=min(versions, default=None),
        policy_version_max=max(versions, default=None),
        sealed_at_ms=sealed.event_time_ms,
        clean=sealed.integrity.clean,
        rollout_index=sealed.rollout_index,
        policy=sealed.policy,
    )
    facts = (
        member_facts(sealed, reward)
        if rules.curation
        else MemberFacts(trajectory_id=sealed.trajectory_id, outcome=sealed.outcome, policy=sealed.policy)
    )
    return Member(member=member, facts=facts)


def revised_member(known: Member, event: TrajectoryRevised, rules: Rules) -> Member:
    """The member after a newer reward, or after steps that came too late."""
    reward = training_reward(event.rewards, rules.reward, known.member.outcome)
    gaps = known.facts.gaps | ({"late": event.late_steps} if event.late_steps else {})
    return replace(
        known,
        member=replace(known.member, reward=reward),
        facts=replace(known.facts, reward=reward, gaps=gaps),
        revision=event.revision,
    )


def place_in_group(member: Member) -> tuple[bool, int, str]:
    """Sort key of a group's members: as the runner numbers them, then by trajectory id."""
    index = member.member.rollout_index
    return index is None, index or 0, member.member.trajectory_id
