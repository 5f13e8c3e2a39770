"""The same prompt again."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class DuplicatePrompt(Rule, frozen=True, kw_only=True, tag="duplicate_prompt"):
    """Finds groups whose prompt id was released more than `max_earlier` times in this run and channel.

    Prompts are told apart by prompt id. What is remembered goes back `closed_ttl_ms`.
    """

    max_earlier: int = 0

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One, of the group."""
        earlier = len(group.earlier_groups)
        if earlier <= self.max_earlier:
            return []
        value = {
            "earlier_groups": earlier,
            "max_earlier": self.max_earlier,
            "last": sorted(group.earlier_groups)[-1],
        }
        return [Finding(value)]
