"""What is decided about a group that no longer waits: people first, then evaluators and rules. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentworld.contract.events import GroupMember, VerdictGiven
from agentworld.contract.events.trajectory_events import Decision
from stream_processors.curation import GroupFacts, Judgement, judge
from stream_processors.curation.rule import STRICTNESS
from stream_processors.groups.state import GroupState, GroupVerdict, Member
from stream_processors.groups.verdicts import counting
from stream_processors.rules import UNFINISHED, Rules

_HELD_BACK: dict[Decision, GroupVerdict] = {"hold": "held", "reject": "rejected"}


class Decided(NamedTuple):
    """A decision, its reason, and the trajectories that it is about."""

    verdict: GroupVerdict
    reason: str
    decided_by: str
    members: list[GroupMember]
    details: dict[str, Any]


def counted(group: GroupState, rules: Rules, *, lost_too: bool = False) -> list[Member]:
    """The members that count towards n.

    Lost ones only with `lost_too`. Where the run wants a reward, a rollout that ended by the agent's
    word counts once it has one.
    """
    return [
        known
        for known in group.members
        if (lost_too or not known.lost)
        and not (
            rules.reward.required and known.member.reward is None and known.member.outcome not in UNFINISHED
        )
    ]


def judgement_of(group: GroupState, rules: Rules, earlier_groups: Sequence[str]) -> Judgement:
    """What the run's curation rules say of the members that verdicts leave in."""
    members = _members(group, rules)
    excluded = _excluded_by_verdict(group, members)
    facts = GroupFacts(
        group_id=group.group_id,
        prompt_id=group.prompt_id,
        round=group.round,
        rollouts=group.rollouts,
        members=[known.facts for known in members if known.member.trajectory_id not in excluded],
        policy_versions=group.policy_versions or {},
        earlier_groups=earlier_groups,
    )
    return judge(rules.curation, facts)


def decide(group: GroupState, rules: Rules) -> Decided:
    """The decision on a group whose basis stands, by the verdicts on it and its judgement.

    A person's verdict wins. Without one, an expired group stays expired, and of evaluators' verdicts
    and rules the strictest counts. Trajectories that are left out are named in `excluded`; a group of
    which none remain, or fewer than `partial` needs, is rejected.
    """
    judgement = group.judgement or Judgement(decision="accept")
    members = [known.member for known in _members(group, rules)]
    accepted = {
        verdict.trajectory_id
        for verdict in group.verdicts
        if verdict.given_by_kind == "person" and verdict.decision == "accept"
    }
    excluded = {name: why for name, why in judgement.excluded.items() if name not in accepted}
    excluded |= _excluded_by_verdict(group, _members(group, rules))
    kept = [member for member in members if member.trajectory_id not in excluded]
    released: GroupVerdict = "ready" if len(kept) == group.rollouts else "partial"
    verdict, reason, decided_by, details = _verdict(group, rules, judgement, released=released)
    least = rules.group.min_k if group.basis == "partial" else 1
    if verdict == released and len(kept) < least:
        left = f"{len(kept)} trajectories are left, of {least} needed" if kept else "no trajectory is left"
        verdict, reason, decided_by = "rejected", f"{left} after {len(excluded)} were left out", "exclusion"
    return Decided(verdict, reason, decided_by, kept, details | ({"excluded": excluded} if excluded else {}))


def _members(group: GroupState, rules: Rules) -> list[Member]:
    """Those a decision is about: lost ones only where the deadline came before a replacement."""
    return counted(group, rules, lost_too=group.basis != "complete")


def _verdict(
    group: GroupState, rules: Rules, judgement: Judgement, *, released: GroupVerdict
) -> tuple[GroupVerdict, str, str, dict[str, Any]]:
    given = counting(group.verdicts)
    if given is not None and given.given_by_kind == "person":
        return _by_verdict(given, released)
    policy = rules.group.policy
    if group.basis == "expired":
        return "expired", group.basis_reason, policy, {"deadline_ms": rules.group.deadline_ms}
    said = [verdict for verdict in (given, *_trajectories_on_hold(group)) if verdict is not None]
    strictest = max(said, key=lambda verdict: STRICTNESS[verdict.decision], default=None)
    if strictest is not None and STRICTNESS[strictest.decision] > STRICTNESS[judgement.decision]:
        return _by_verdict(strictest, released)
    if judgement.decision != "accept":
        reason = f"rule {judgement.rule}: {_said(judgement.value)}"
        value = {"given_by_kind": "rule", **judgement.value}
        return _HELD_BACK[judgement.decision], reason, judgement.rule, value
    details = {"accepted_by": judgement.rule, **judgement.value} if judgement.rule else {}
    return released, group.basis_reason, policy, details


def _by_verdict(given: VerdictGiven, released: GroupVerdict) -> tuple[GroupVerdict, str, str, dict[str, Any]]:
    who = given.given_by or given.given_by_kind
    reason = given.reason or f"{given.given_by_kind} {who}: {given.decision}"
    details = {"given_by_kind": given.given_by_kind, "verdict_id": given.event_id, **given.value}
    return _HELD_BACK.get(given.decision, released), reason, who, details


def _excluded_by_verdict(group: GroupState, members: Sequence[Member]) -> dict[str, Any]:
    excluded = {}
    for known in members:
        given = counting(group.verdicts, known.member.trajectory_id)
        if given is not None and given.decision == "reject":
            excluded[known.member.trajectory_id] = {
                "given_by_kind": given.given_by_kind,
                "given_by": given.given_by,
                "reason": given.reason,
            }
    return excluded


def _trajectories_on_hold(group: GroupState) -> list[VerdictGiven]:
    return [
        verdict
        for verdict in group.verdicts
        if verdict.trajectory_id is not None
        and verdict.decision == "hold"
        and counting(group.verdicts, verdict.trajectory_id) is verdict
    ]


def _said(value: dict[str, Any]) -> str:
    return ", ".join(f"{name} {entry}" for name, entry in value.items())
