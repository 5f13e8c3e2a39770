"""Which version each policy has, as this gateway sees it."""

from __future__ import annotations

from collections.abc import Callable

from agentworld.contract.events import PolicyPublished


class PolicyVersions:
    """Newest published version by policy name; fed from topic `policy-versions`."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._told: list[Callable[[PolicyPublished], None]] = []

    def tell(self, listener: Callable[[PolicyPublished], None]) -> None:
        """Call `listener` with each publication from here on."""
        self._told.append(listener)

    def take(self, event: PolicyPublished) -> None:
        """A publication as it stands in the topic."""
        self.published(event.policy, event.version)
        for listener in self._told:
            listener(event)

    def current(self, policy: str) -> int | None:
        """The version, or None where none was published yet."""
        return self._versions.get(policy)

    def published(self, policy: str, version: int) -> None:
        """A new version, or an older one again after a rollback."""
        self._versions[policy] = version
