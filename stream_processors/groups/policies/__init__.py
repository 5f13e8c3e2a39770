"""What becomes of a group at its deadline. One policy per file, all pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_processors.groups.policies.at_deadline import AtDeadline
from stream_processors.groups.policies.drop import drop
from stream_processors.groups.policies.partial import partial
from stream_processors.groups.policies.wait import wait
from stream_processors.rules import GroupPolicy, GroupRules

POLICIES: Mapping[GroupPolicy, Callable[[int, int, GroupRules], AtDeadline]] = {
    "wait": wait,
    "partial": partial,
    "drop": drop,
}
"""By name: how many trajectories count, n, and the group's rules give what happens."""

__all__ = ["POLICIES", "AtDeadline"]
