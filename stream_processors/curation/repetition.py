"""Responses that go round in circles."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class Repetition(Rule, frozen=True, kw_only=True, tag="repetition"):
    """Finds trajectories in one of whose responses more than `max_share` of the 8-grams are repeated."""

    max_share: float

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory."""
        return [
            Finding(
                {"repeated_share": member.repeated_share, "max_share": self.max_share}, member.trajectory_id
            )
            for member in group.members
            if member.repeated_share > self.max_share
        ]
