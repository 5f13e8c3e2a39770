"""Give an incomplete group up: a straggler is not worth the delay."""

from __future__ import annotations

from stream_processors.groups.policies.at_deadline import AtDeadline, sealed_in_time
from stream_processors.rules import GroupRules


def drop(counted: int, rollouts: int, rules: GroupRules) -> AtDeadline:
    """The group expires."""
    fact = sealed_in_time(counted, rollouts, rules.deadline_ms)
    return AtDeadline("expired", f"{fact}: an incomplete group is dropped")
