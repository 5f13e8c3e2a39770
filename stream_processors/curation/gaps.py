"""Trajectories of which something is missing."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class Gaps(Rule, frozen=True, kw_only=True, tag="gaps"):
    """Finds trajectories with more than `max_gaps` gaps of `kinds`."""

    kinds: tuple[str, ...] = ("missing_base", "failed", "cancelled", "timed_out", "malformed", "late")
    """As in the seal's integrity report (`truncated` too), and `late`: steps after the seal."""
    max_gaps: int = 0

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory."""
        found = []
        for member in group.members:
            gaps = {kind: member.gaps[kind] for kind in self.kinds if member.gaps.get(kind)}
            if sum(gaps.values()) > self.max_gaps:
                found.append(Finding({"gaps": gaps, "max_gaps": self.max_gaps}, member.trajectory_id))
        return found
