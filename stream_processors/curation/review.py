"""Groups that a person shall see before they train."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agentworld.contract.events.trajectory_events import Decision
from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class Review(Rule, frozen=True, kw_only=True, tag="review"):
    """Finds a fixed `share` of all groups, chosen by their ids: the same ones in a replay."""

    verdict: Decision = "hold"
    share: float = 1.0
    """0 to 1; 1: every group."""

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One, of the group."""
        drawn = int.from_bytes(hashlib.sha256(group.group_id.encode()).digest()[:8]) / 2**64
        return [Finding({"share": self.share})] if drawn < self.share else []
