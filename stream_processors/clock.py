"""Log time: how much time has passed in one partition, by the ticks that stand in it."""

from __future__ import annotations

import msgspec

from agentworld.contract.events import ClockTicked
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import TopicSpec

MAX_CLOCK_STEP_MS = 1_500
"""Most that one tick moves log time. While anything is open a tick stands in the log every second
or so; a longer silence means that nothing could be written, and nobody's patience ran out in it."""


class Clock(msgspec.Struct, frozen=True):
    """One partition's time. Only `ClockTicked` moves it.

    Deadlines are measured in `active_ms`, never in wall-clock time: a replay decides alike, and an
    outage of the whole system expires nothing. Other events do not move it: what a gateway's spool
    held during an outage comes all at once, and must not use up a grace in which another's still drains.
    """

    last_ms: int = 0
    """Greatest time of a tick, Unix ms."""
    active_ms: int = 0
    """Log time that has passed since the partition's first tick."""

    def advance(self, event_time_ms: int) -> Clock:
        """The clock after a tick; itself (the same object) where the tick brings no new time."""
        if event_time_ms <= self.last_ms:
            return self
        step_ms = min(event_time_ms - self.last_ms, MAX_CLOCK_STEP_MS) if self.last_ms else 0
        return Clock(last_ms=event_time_ms, active_ms=self.active_ms + step_ms)


encode_clock = msgspec.json.Encoder().encode
decode_clock = msgspec.json.Decoder(Clock).decode


def clock_ticked(source: TopicSpec, partition: int, now_ms: int) -> ClockTicked:
    """The event that carries time to `now_ms` in a partition; equal calls give equal events."""
    return ClockTicked(
        event_id=derived_id("clock_ticked", source.name, partition, now_ms),
        event_time_ms=now_ms,
        source="stream-processors.clock",
        partition=partition,
    )
