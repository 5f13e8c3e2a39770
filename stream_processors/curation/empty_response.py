"""Steps in which nothing was sampled, and rollouts without a step that trains."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class EmptyResponse(Rule, frozen=True, kw_only=True, tag="empty_response"):
    """Finds trajectories with an empty response on their trained branch, or with no such branch."""

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory."""
        return [
            Finding({"empty_responses": member.empty_responses, "steps": member.steps}, member.trajectory_id)
            for member in group.members
            if member.empty_responses or not member.steps
        ]
