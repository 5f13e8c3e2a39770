"""Steps whose ids are not the ones that were sampled."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.contract.events import TokenSource
from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class TokenSourceRule(Rule, frozen=True, kw_only=True, tag="token_source"):
    """Finds trajectories with a step whose token source is none of `allowed`."""

    allowed: tuple[TokenSource, ...] = ("engine",)

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory."""
        return [
            Finding({"token_sources": member.token_sources, "allowed": self.allowed}, member.trajectory_id)
            for member in group.members
            if member.token_sources.keys() - set(self.allowed)
        ]
