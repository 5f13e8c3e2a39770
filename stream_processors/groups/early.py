"""Verdicts on groups that are not known: they wait for the group's first seal, and not for ever."""

from __future__ import annotations

from agentworld.contract.events import VerdictGiven
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import OutRecord, Record
from stream_processors.effects import Effects
from stream_processors.groups.state import EarlyVerdict, decode_early, encode_state
from stream_processors.groups.verdicts import with_verdict

CONSUMER = "stream-processors.group"


class EarlyVerdicts:
    """Those of one partition, by group id."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._by_group: dict[str, tuple[EarlyVerdict, ...]] = {}

    def load(self, group_id: str, value: bytes) -> None:
        """Take over a stored entry."""
        self._by_group[group_id] = decode_early(value)

    def keep(self, event: VerdictGiven, offset: int, log_ms: int, effects: Effects) -> None:
        """Remember a verdict; one that its giver has replaced already changes nothing."""
        known = self._by_group.get(event.group_id, ())
        events = tuple(early.event for early in known)
        kept = with_verdict(events, event)
        if kept is events:
            return
        new = EarlyVerdict(event=event, offset=offset, since_ms=log_ms)
        by_id = {early.event.event_id: early for early in (*known, new)}
        self._write(event.group_id, tuple(by_id[verdict.event_id] for verdict in kept), effects)

    def take(self, group_id: str, effects: Effects) -> tuple[VerdictGiven, ...]:
        """The verdicts on a group whose first trajectory is sealed now."""
        found = self._by_group.pop(group_id, ())
        if found:
            effects.writes["early", group_id] = None
        return tuple(early.event for early in found)

    def expired(self, now_ms: int, ttl_ms: int, effects: Effects) -> list[OutRecord]:
        """Dead letters of those that nothing came for within `ttl_ms` of log time."""
        letters = []
        for group_id, known in list(self._by_group.items()):
            late = [early for early in known if early.since_ms + ttl_ms <= now_ms]
            if late:
                self._write(group_id, tuple(early for early in known if early not in late), effects)
                letters += [self._letter(early, ttl_ms) for early in late]
        return letters

    def _write(self, group_id: str, verdicts: tuple[EarlyVerdict, ...], effects: Effects) -> None:
        if verdicts:
            self._by_group[group_id] = verdicts
        else:
            del self._by_group[group_id]
        effects.writes["early", group_id] = encode_state(verdicts) if verdicts else None

    def _letter(self, early: EarlyVerdict, ttl_ms: int) -> OutRecord:
        written = OutRecord.of(TRAJECTORIES, early.event)
        record = Record(
            topic=TRAJECTORIES.name,
            partition=self._partition,
            offset=early.offset,
            key=written.key,
            value=written.value,
            headers=written.headers,
            timestamp_ms=early.event.event_time_ms,
        )
        detail = f"no trajectory of group {early.event.group_id} within {ttl_ms} ms of log time"
        return dead_letter(record, reason="unknown_group", detail=detail, consumer=CONSUMER)
