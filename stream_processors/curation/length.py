"""Trajectories that are too short or too long."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts, MemberFacts
from stream_processors.curation.rule import Finding, Rule


class Length(Rule, frozen=True, kw_only=True, tag="length"):
    """Finds trajectories outside the limits. Limits left at 0 are not asked."""

    min_steps: int = 0
    max_steps: int = 0
    min_response_tokens: int = 0
    """Of all steps together."""
    max_response_tokens: int = 0
    """Of all steps together."""
    max_step_response_tokens: int = 0
    """Of any one step."""
    max_prompt_tokens: int = 0
    """Of any one step."""

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory, with the first limit it breaks."""
        found = []
        for member in group.members:
            for name, value, limit in self._broken(member):
                found.append(Finding({name: value, f"limit_{name}": limit}, member.trajectory_id))
                break
        return found

    def _broken(self, member: MemberFacts) -> Sequence[tuple[str, int, int]]:
        lower = (
            ("steps", member.steps, self.min_steps),
            ("response_tokens", member.response_tokens, self.min_response_tokens),
        )
        upper = (
            ("steps", member.steps, self.max_steps),
            ("response_tokens", member.response_tokens, self.max_response_tokens),
            ("step_response_tokens", member.longest_response_tokens, self.max_step_response_tokens),
            ("prompt_tokens", member.longest_prompt_tokens, self.max_prompt_tokens),
        )
        return [entry for entry in lower if entry[1] < entry[2]] + [
            entry for entry in upper if 0 < entry[2] < entry[1]
        ]
