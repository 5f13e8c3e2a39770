"""What a sealed or revised trajectory does to its group, and what a deadline does. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.contract.events import (
    GroupDecision,
    GroupExpired,
    GroupReady,
    GroupRevised,
    Place,
    TrajectoryRevised,
    TrajectorySealed,
)
from agentworld.contract.ids import derived_id
from stream_processors.groups.member import member_of
from stream_processors.groups.state import GroupState, Member
from stream_processors.rules import Rules

SOURCE = "stream-processors.group"
POLICY = "wait"
"""The policy that decides here: wait for n trajectories, or for the deadline."""

replace = msgspec.structs.replace


def advance(
    state: GroupState | None, event: TrajectorySealed, place: Place, *, log_ms: int
) -> tuple[GroupState, list[GroupDecision]]:
    """The group with a sealed trajectory in it.

    The n-th one makes it ready. A trajectory that comes after the decision revises the group: of a
    ready one it is surplus and named in the details, into an expired one it is taken up, and the
    group stays expired. One that is known already changes nothing: `state` itself is returned.
    """
    group = state or GroupState(
        group_id=event.group_id,
        run_id=event.run_id,
        channel=event.channel,
        round=event.round,
        prompt_id=event.prompt_id,
        rollouts=event.rollouts,
        opened_at_ms=log_ms,
    )
    if group.has(event.trajectory_id):
        return group, []
    if event.rollouts != group.rollouts:
        group = replace(group, conflicts=(*group.conflicts, event.trajectory_id))
    if len(group.members) >= group.rollouts:
        group = replace(group, surplus=(*group.surplus, event.trajectory_id))
    else:
        group = replace(group, members=(*group.members, Member(member=member_of(event, place))))
    if group.verdict == "open":
        if len(group.members) < group.rollouts:
            return group, []
        return _decide(
            group,
            "ready",
            GroupReady,
            reason=f"all {group.rollouts} trajectories are sealed",
            event_time_ms=event.event_time_ms,
            log_ms=log_ms,
        )
    late = "surplus_trajectory" if event.trajectory_id in group.surplus else "late_trajectory"
    return _revise(group, late, event.event_time_ms, {"trajectory_id": event.trajectory_id})


def revise(state: GroupState, event: TrajectoryRevised) -> tuple[GroupState, list[GroupDecision]]:
    """The group with a trajectory's newer reward; a decided group says so.

    Returns `state` itself where the trajectory is no member, or the revision is not newer.
    """
    ids = [known.member.trajectory_id for known in state.members]
    if event.trajectory_id not in ids:
        return state, []
    index = ids.index(event.trajectory_id)
    known = state.members[index]
    if event.revision <= known.revision:
        return state, []
    changed = Member(member=replace(known.member, reward=event.reward), revision=event.revision)
    group = replace(state, members=(*state.members[:index], changed, *state.members[index + 1 :]))
    if state.verdict == "open" or known.member.reward == event.reward:
        return group, []
    details = {
        "trajectory_id": event.trajectory_id,
        "revision": event.revision,
        "reward": event.reward,
        "previous_reward": known.member.reward,
    }
    return _revise(group, "reward_revised", event.event_time_ms, details)


def expire(
    state: GroupState, *, event_time_ms: int, log_ms: int, rules: Rules
) -> tuple[GroupState, list[GroupDecision]]:
    """The open group, given up at its deadline."""
    return _decide(
        state,
        "expired",
        GroupExpired,
        reason=(
            f"{len(state.members)} of {state.rollouts} trajectories were sealed "
            f"within {rules.group.deadline_ms} ms of log time"
        ),
        event_time_ms=event_time_ms,
        log_ms=log_ms,
        details={"group_deadline_ms": rules.group.deadline_ms},
    )


def due_ms(state: GroupState, rules: Rules) -> int:
    """Log time at which the group expires, or, once decided, is forgotten."""
    if state.verdict == "open":
        return state.opened_at_ms + rules.group.deadline_ms
    return state.decided_at_ms + rules.closed_ttl_ms


def _decide(
    group: GroupState,
    verdict: Any,
    kind: type[GroupDecision],
    *,
    reason: str,
    event_time_ms: int,
    log_ms: int,
    details: dict[str, Any] | None = None,
) -> tuple[GroupState, list[GroupDecision]]:
    decided = replace(group, verdict=verdict, version=1, decided_at_ms=log_ms)
    return decided, [_event(decided, kind, reason, event_time_ms, details or {})]


def _revise(
    group: GroupState, reason: str, event_time_ms: int, details: dict[str, Any]
) -> tuple[GroupState, list[GroupDecision]]:
    revised = replace(group, version=group.version + 1)
    return revised, [_event(revised, GroupRevised, reason, event_time_ms, details)]


def _event(
    group: GroupState, kind: type[GroupDecision], reason: str, event_time_ms: int, details: dict[str, Any]
) -> GroupDecision:
    conflicts = {"rollouts_conflicts": list(group.conflicts)} if group.conflicts else {}
    return kind(
        event_id=derived_id("group_decision", group.group_id, group.version),
        event_time_ms=event_time_ms,
        source=SOURCE,
        group_id=group.group_id,
        run_id=group.run_id,
        channel=group.channel,
        round=group.round,
        prompt_id=group.prompt_id,
        rollouts=group.rollouts,
        version=group.version,
        members=[known.member for known in group.members],
        reason=reason,
        decided_by=POLICY,
        details=details | conflicts,
    )
