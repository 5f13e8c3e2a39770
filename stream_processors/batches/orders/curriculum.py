"""By difficulty, as the group's mean reward tells it."""

from __future__ import annotations

from stream_processors.batches.state import GroupEntry
from stream_processors.rules import BatchRules


def curriculum(entry: GroupEntry, rules: BatchRules) -> tuple[bool, float, int]:
    """Easiest first, or `hardest_first`; groups in which nobody has a reward last."""
    members = entry.group.members if entry.group is not None else []
    rewards = [member.reward for member in members if member.reward is not None]
    if not rewards:
        return True, 0.0, entry.arrival
    mean = sum(rewards) / len(rewards)
    return False, mean if rules.hardest_first else -mean, entry.arrival
