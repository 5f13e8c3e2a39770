"""Wait for all n; the deadline only bounds what a lost rollout can hold up."""

from __future__ import annotations

from stream_processors.groups.policies.at_deadline import AtDeadline, sealed_in_time
from stream_processors.rules import GroupRules


def wait(counted: int, rollouts: int, rules: GroupRules) -> AtDeadline:
    """The group expires."""
    return AtDeadline("expired", sealed_in_time(counted, rollouts, rules.deadline_ms))
