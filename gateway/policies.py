"""Which version each policy has, as this gateway sees it."""

from __future__ import annotations


class PolicyVersions:
    """Newest published version by policy name; fed from topic `policy-versions`."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def current(self, policy: str) -> int | None:
        """The version, or None where none was published yet."""
        return self._versions.get(policy)

    def published(self, policy: str, version: int) -> None:
        """A new version, or an older one again after a rollback."""
        self._versions[policy] = version
