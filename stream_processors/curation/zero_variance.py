"""Groups whose rewards are all alike: their advantages are zero."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class ZeroVariance(Rule, frozen=True, kw_only=True, tag="zero_variance"):
    """Finds groups in which no two rewards differ by more than `tolerance`.

    Dynamic sampling of DAPO (Yu et al. 2025, section 3.2): such a group gives no gradient. Trajectories
    without a reward are passed over; a group in which fewer than two have one is not judged.
    """

    tolerance: float = 0.0

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One, of the group."""
        rewards = [member.reward for member in group.members if member.reward is not None]
        if len(rewards) < 2 or max(rewards) - min(rewards) > self.tolerance:
            return []
        value = {"lowest_reward": min(rewards), "highest_reward": max(rewards), "tolerance": self.tolerance}
        return [Finding(value)]
