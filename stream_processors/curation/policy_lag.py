"""Steps sampled by a policy that the trainer has left behind."""

from __future__ import annotations

from collections.abc import Sequence

from stream_processors.curation.facts import GroupFacts
from stream_processors.curation.rule import Finding, Rule


class PolicyLag(Rule, frozen=True, kw_only=True, tag="policy_lag"):
    """Finds trajectories whose oldest step is more than `max_versions` behind the newest version."""

    max_versions: int

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """One per trajectory that lags too far. Without a known version there is no lag."""
        found = []
        for member in group.members:
            newest = group.policy_versions.get(member.policy)
            if newest is None or member.policy_version_min is None:
                continue
            lag = newest - member.policy_version_min
            if lag > self.max_versions:
                value = {"policy_lag": lag, "max_versions": self.max_versions, "newest_version": newest}
                found.append(Finding(value, member.trajectory_id))
        return found
