"""The newest published version of each policy, as one partition knows it."""

from __future__ import annotations

from agentworld.contract.events import PolicyPublished
from stream_processors.effects import Effects


class NewestVersions(dict[str, int]):
    """By policy name. Kept in state under the key `("policy", name)`."""

    def load(self, policy: str, value: bytes) -> None:
        """Take over a stored entry."""
        self[policy] = int(value)

    def note(self, event: PolicyPublished, effects: Effects) -> None:
        """Remember a version; one that is not newer changes nothing."""
        if event.version > self.get(event.policy, -1):
            self[event.policy] = event.version
            effects.writes["policy", event.policy] = str(event.version).encode()
