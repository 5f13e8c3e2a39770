"""Release an incomplete group if enough of it is there."""

from __future__ import annotations

from stream_processors.groups.policies.at_deadline import AtDeadline, sealed_in_time
from stream_processors.rules import GroupRules


def partial(counted: int, rollouts: int, rules: GroupRules) -> AtDeadline:
    """Released with `min_k` trajectories or more, else the group expires."""
    fact = sealed_in_time(counted, rollouts, rules.deadline_ms)
    if counted >= rules.min_k:
        return AtDeadline("partial", f"{fact}; {rules.min_k} are enough")
    return AtDeadline("expired", f"{fact}, fewer than the {rules.min_k} that would do")
