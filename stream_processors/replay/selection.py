"""Which of a topic's records a replay takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentworld.contract.errors import InvalidInput

_SPAN = re.compile(r"(\d+):(\d*)-(\d*)")


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of one run by place, time or id. What is left open is not asked."""

    run_id: str
    channel: str | None = None
    since_ms: int | None = None
    """Event time from which events count, Unix ms."""
    until_ms: int | None = None
    """Event time before which events count, Unix ms."""
    offsets: Mapping[int, tuple[int, int | None]] = field(default_factory=dict)
    """First and one-past-last offset by partition; partitions not named are left out. Empty: all."""
    trajectory_ids: frozenset[str] | None = None
    group_ids: frozenset[str] | None = None

    def has_place(self, partition: int, offset: int) -> bool:
        """Whether a record there may be read at all."""
        if not self.offsets:
            return True
        first, end = self.offsets.get(partition, (0, 0))
        return first <= offset and (end is None or offset < end)

    def has_time(self, event_time_ms: int) -> bool:
        """Whether something that happened then counts."""
        return (self.since_ms is None or event_time_ms >= self.since_ms) and (
            self.until_ms is None or event_time_ms < self.until_ms
        )

    def has_trajectory(self, run_id: str, channel: str, group_id: str, trajectory_id: str) -> bool:
        """Whether a trajectory is one of those asked for."""
        return (
            run_id == self.run_id
            and self.channel in (None, channel)
            and (self.group_ids is None or group_id in self.group_ids)
            and (self.trajectory_ids is None or trajectory_id in self.trajectory_ids)
        )


def parse_offsets(text: str) -> dict[int, tuple[int, int | None]]:
    """`0:100-200,1:50-` as first and one-past-last offset by partition. Raises `InvalidInput`."""
    found: dict[int, tuple[int, int | None]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _SPAN.fullmatch(part)
        if match is None:
            raise InvalidInput(
                f"offsets {part!r}: write PARTITION:FIRST-END, e.g. 0:100-200 or 1:50-",
                code="invalid_offsets",
            )
        partition, first, end = match.groups()
        found[int(partition)] = int(first or 0), int(end) if end else None
    return found
