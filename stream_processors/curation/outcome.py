"""Rollouts that ended in a way one does not want to train on."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.contract.events import Outcome
from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class OutcomeRule(Rule, frozen=True, kw_only=True, tag="outcome"):
    """Finds trajectories with one of `outcomes`, where more than `max_share` of the group has them."""

    outcomes: tuple[Outcome, ...]
    max_share: float = 0.0
    """Of the group's trajectories, 0 to 1."""

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory with such an outcome; none where they are few enough."""
        hit = [member for member in group.members if member.outcome in self.outcomes]
        if not hit or len(hit) <= self.max_share * len(group.members):
            return []
        share = {"share": len(hit) / len(group.members), "max_share": self.max_share}
        return [Finding({"outcome": member.outcome} | share, member.trajectory_id) for member in hit]
