"""What a seal, a revision, a verdict and a deadline do to their group. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentworld.contract.events import (
    Event,
    GroupDecision,
    GroupExpired,
    GroupHeld,
    GroupPartial,
    GroupReady,
    GroupRejected,
    GroupRevised,
    Place,
    RolloutsConflicted,
    RolloutWanted,
    TrajectoryRevised,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.ids import derived_id
from stream_processors.groups.deciding import Decided, counted, decide, judgement_of
from stream_processors.groups.member import member_of, place_in_group, revised_member
from stream_processors.groups.policies import POLICIES
from stream_processors.groups.state import GroupState, GroupVerdict
from stream_processors.groups.verdicts import with_verdict
from stream_processors.rules import UNFINISHED, Rules

SOURCE = "stream-processors.group"

_KINDS: Mapping[GroupVerdict, type[GroupDecision]] = {
    "ready": GroupReady,
    "partial": GroupPartial,
    "held": GroupHeld,
    "rejected": GroupRejected,
    "expired": GroupExpired,
}
_REVISING = frozenset(
    {"late_trajectory", "surplus_trajectory", "reward_revised", "late_step", "trajectories_judged"}
)
"""Causes that change what a decision is about, where they do not change the decision."""
RELEASED: frozenset[GroupVerdict] = frozenset({"ready", "partial"})

replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Now:
    """When something happens to a group, and what its partition knows beside it."""

    event_time_ms: int
    """Unix ms."""
    log_ms: int
    """Log time."""
    policy_versions: Mapping[str, int] = field(default_factory=dict)
    """Newest published version by policy."""
    earlier_groups: Sequence[str] = ()
    """Groups of the same run, channel and prompt that were released."""


def advance(
    state: GroupState | None,
    event: TrajectorySealed,
    place: Place,
    *,
    now: Now,
    rules: Rules,
    early: Sequence[VerdictGiven] = (),
) -> tuple[GroupState, list[Event]]:
    """The group with a sealed trajectory in it. `early` are verdicts that were given before its first.

    The n-th one ends the waiting. A trajectory that comes after the decision revises the group: of a
    complete one it is surplus and named in the details, into another it is taken up. One that is
    known already changes nothing: `state` itself is returned.
    """
    group = state or _opened(event, now, rules, early)
    trajectory_id = event.trajectory_id
    if group.has(trajectory_id):
        return group, []
    outputs: list[Event] = []
    if event.rollouts != group.rollouts and not rules.group.rollouts:
        group = replace(group, conflicts=(*group.conflicts, trajectory_id))
        outputs.append(_conflict(group, event, now))
    group = _without_replaced(group, event.replaces_trajectory_id)
    seats = sum(not known.lost for known in group.members)
    if seats >= group.rollouts:
        group = replace(group, surplus=(*group.surplus, trajectory_id))
    else:
        member = member_of(event, place, rules)
        wanted = (
            group.basis == "open"
            and event.outcome in rules.group.refill_outcomes
            and group.refills < rules.group.max_refills
        )
        if wanted:
            group = replace(group, refills=group.refills + 1)
            outputs.append(_wanted(group, event, now))
            member = replace(member, lost=True)
        group = replace(group, members=tuple(sorted((*group.members, member), key=place_in_group)))
    cause = "surplus_trajectory" if trajectory_id in group.surplus else "late_trajectory"
    group, decisions = _settled(group, now, rules, cause=cause, details={"trajectory_id": trajectory_id})
    return group, outputs + decisions


def revise(
    group: GroupState, event: TrajectoryRevised, *, now: Now, rules: Rules
) -> tuple[GroupState, list[Event]]:
    """The group with a trajectory's newer reward or late steps; a decided group says so.

    Returns `group` itself where the trajectory is no member, or the revision is not newer.
    """
    ids = [known.member.trajectory_id for known in group.members]
    if event.trajectory_id not in ids:
        return group, []
    index = ids.index(event.trajectory_id)
    known = group.members[index]
    if event.revision <= known.revision:
        return group, []
    changed = revised_member(known, event, rules)
    after = replace(group, members=(*group.members[:index], changed, *group.members[index + 1 :]))
    if known.member.reward == changed.member.reward and known.facts.gaps == changed.facts.gaps:
        return after, []
    details = {
        "trajectory_id": event.trajectory_id,
        "revision": event.revision,
        "reward": changed.member.reward,
        "previous_reward": known.member.reward,
    }
    cause = "late_step" if known.member.reward == changed.member.reward else "reward_revised"
    return _settled(after, now, rules, cause=cause, details=details)


def give_verdict(
    group: GroupState, event: VerdictGiven, *, now: Now, rules: Rules
) -> tuple[GroupState, list[Event]]:
    """The group with a verdict on it or on one of its trajectories; `group` itself where it is not newer."""
    verdicts = with_verdict(group.verdicts, event)
    if verdicts is group.verdicts:
        return group, []
    after = replace(group, verdicts=verdicts)
    details = {"verdict_id": event.event_id}
    if group.basis != "open" and decide(group, rules).members != decide(after, rules).members:
        return _settled(after, now, rules, cause="trajectories_judged", details=details)
    return _settled(after, now, rules, cause="verdict_given", details=details)


def meet_deadline(group: GroupState, *, now: Now, rules: Rules) -> tuple[GroupState, list[Event]]:
    """The waiting group at its deadline, or the held one whose time for a verdict is over."""
    if group.verdict == "held":
        reason = f"held for {rules.group.hold_timeout_ms} ms of log time without a verdict"
        heard = tuple(verdict for verdict in group.verdicts if verdict.decision != "hold")
        after = replace(group, basis="expired", basis_reason=reason, verdicts=heard)
    else:
        there = len(counted(group, rules, lost_too=True))  # who was not replaced failed, and counts
        answer = POLICIES[rules.group.policy](there, group.rollouts, rules.group)
        after = replace(group, basis=answer.basis, basis_reason=answer.reason)
    return _settled(after, now, rules, cause="deadline", details={})


def due_ms(group: GroupState, rules: Rules) -> int | None:
    """Log time at which its deadline is met, or, once decided, it is forgotten; None: never."""
    if group.verdict == "open":
        return group.opened_at_ms + rules.group.deadline_ms if rules.group.deadline_ms else None
    if group.verdict == "held":
        timeout_ms = rules.group.hold_timeout_ms
        return group.decided_at_ms + timeout_ms if timeout_ms else None
    return group.decided_at_ms + rules.closed_ttl_ms


def _settled(
    group: GroupState, now: Now, rules: Rules, *, cause: str, details: dict[str, Any]
) -> tuple[GroupState, list[Event]]:
    """The group with the decision that follows from what it holds now.

    A decision differs from the one before by its verdict or by who decided. Where neither changed but
    the trajectories or their rewards did, the group is revised.
    """
    group = _with_basis(group, rules)
    if group.basis == "open":
        return group, []
    if group.policy_versions is None:
        group = replace(group, policy_versions=dict(now.policy_versions))
    if group.verdict not in RELEASED:
        group = replace(group, judgement=judgement_of(group, rules, now.earlier_groups))
    decided = decide(group, rules)
    is_new = (decided.verdict, decided.decided_by) != (group.verdict, group.decided_by)
    if not is_new and cause not in _REVISING:
        return group, []
    group = replace(group, version=group.version + 1)
    if not is_new:
        details = decided.details | details
        return group, [_event(group, GroupRevised, decided, cause, now, details)]
    group = replace(group, verdict=decided.verdict, decided_by=decided.decided_by, decided_at_ms=now.log_ms)
    kind = _KINDS[decided.verdict]
    return group, [_event(group, kind, decided, decided.reason, now, decided.details)]


def _with_basis(group: GroupState, rules: Rules) -> GroupState:
    if group.basis in {"complete", "expired"} or len(counted(group, rules)) < group.rollouts:
        return group
    late = ", some of them after the deadline" if group.basis == "partial" else ""
    reason = f"all {group.rollouts} trajectories are sealed{late}"
    return replace(group, basis="complete", basis_reason=reason)


def _opened(event: TrajectorySealed, now: Now, rules: Rules, early: Sequence[VerdictGiven]) -> GroupState:
    group = GroupState(
        group_id=event.group_id,
        run_id=event.run_id,
        channel=event.channel,
        round=event.round,
        prompt_id=event.prompt_id,
        rollouts=rules.group.rollouts or event.rollouts,
        opened_at_ms=now.log_ms,
    )
    for verdict in early:
        group = replace(group, verdicts=with_verdict(group.verdicts, verdict))
    return group


def _without_replaced(group: GroupState, trajectory_id: str | None) -> GroupState:
    """The group without the lost rollout that a replacement names, if that still matters."""
    gone = [
        known
        for known in group.members
        if known.member.trajectory_id == trajectory_id and (known.lost or known.member.outcome in UNFINISHED)
    ]
    if not gone or group.basis == "complete":
        return group
    return replace(
        group,
        members=tuple(known for known in group.members if known not in gone),
        replaced=(*group.replaced, *(known.member.trajectory_id for known in gone)),
    )


def _about(group: GroupState, now: Now) -> dict[str, Any]:
    return {
        "event_time_ms": now.event_time_ms,
        "source": SOURCE,
        "group_id": group.group_id,
        "run_id": group.run_id,
        "channel": group.channel,
        "round": group.round,
        "prompt_id": group.prompt_id,
        "rollouts": group.rollouts,
    }


def _conflict(group: GroupState, event: TrajectorySealed, now: Now) -> RolloutsConflicted:
    return RolloutsConflicted(
        event_id=derived_id("rollouts_conflicted", group.group_id, event.trajectory_id),
        trajectory_id=event.trajectory_id,
        conflicting_rollouts=event.rollouts,
        **_about(group, now),
    )


def _wanted(group: GroupState, event: TrajectorySealed, now: Now) -> RolloutWanted:
    return RolloutWanted(
        event_id=derived_id("rollout_wanted", group.group_id, group.refills),
        replaces_trajectory_id=event.trajectory_id,
        attempt=group.refills,
        reason=f"{event.outcome}: {event.outcome_reason}",
        **_about(group, now),
    )


def _event(
    group: GroupState,
    kind: type[GroupDecision],
    decided: Decided,
    reason: str,
    now: Now,
    details: dict[str, Any],
) -> GroupDecision:
    conflicts = {"rollouts_conflicts": list(group.conflicts)} if group.conflicts else {}
    replaced = {"replaced": list(group.replaced)} if group.replaced else {}
    return kind(
        event_id=derived_id("group_decision", group.group_id, group.version),
        version=group.version,
        members=decided.members,
        reason=reason,
        decided_by=decided.decided_by,
        details=details | conflicts | replaced,
        **_about(group, now),
    )
