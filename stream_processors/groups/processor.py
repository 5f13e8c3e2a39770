"""The group processor: one partition of `trajectories`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentworld.contract.codec import decode
from agentworld.contract.events import GroupDecision, TrajectoryRevised, TrajectorySealed
from agentworld.contract.topics import GROUPS, TRAJECTORIES
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.metrics import counter
from stream_processors.clock import Clock, decode_clock, encode_clock
from stream_processors.deadlines import Deadlines
from stream_processors.effects import CLOCK_KEY, Effects, StateKey
from stream_processors.groups.advance import SOURCE, advance, due_ms, expire, revise
from stream_processors.groups.state import GroupState, decode_state, encode_state
from stream_processors.rules import Rules, RuleSource


class GroupProcessor:
    """Counts sealed trajectories per group until n are there or the deadline passes."""

    source = TRAJECTORIES
    consumer = SOURCE

    def __init__(self, partition: int, rules: RuleSource) -> None:
        self._partition = partition
        self._rules = rules
        self._clock = Clock()
        self._groups: dict[str, GroupState] = {}
        self._deadlines = Deadlines()
        self._open = 0

    @property
    def open_count(self) -> int:
        """Groups not yet decided."""
        return self._open

    def load(self, entries: Mapping[StateKey, bytes]) -> Effects:
        """Take over stored state; there is nothing to repair."""
        for key, value in entries.items():
            if key == CLOCK_KEY:
                self._clock = decode_clock(value)
            else:
                group = self._groups[key[1]] = decode_state(value)
                self._open += group.verdict == "open"
                self._deadlines.set(group.group_id, due_ms(group, self._rules_of(group)))
        return Effects()

    def process(self, record: Record) -> Effects:
        """Apply one record of `trajectories`."""
        event = decode(self.source, record.value)
        counter("processor_events", "agent", "type").labels("group", type(event).__name__).inc()
        effects = Effects()
        clock = self._clock.advance(event.event_time_ms)
        time_passed = clock is not self._clock
        self._clock = clock
        if isinstance(event, TrajectorySealed | TrajectoryRevised):
            self._apply(event, record, effects)
        if time_passed:
            self._meet_deadlines(event.event_time_ms, effects)
            effects.writes[CLOCK_KEY] = encode_clock(clock)
        return effects

    def _apply(self, event: TrajectorySealed | TrajectoryRevised, record: Record, effects: Effects) -> None:
        before = self._groups.get(event.group_id)
        after: GroupState | None
        decisions: Sequence[GroupDecision]
        if isinstance(event, TrajectorySealed):
            after, decisions = advance(before, event, record.place, log_ms=self._clock.active_ms)
        else:
            after, decisions = revise(before, event) if before is not None else (None, [])
        if after is None or after is before:
            counter("processor_duplicates", "agent").labels("group").inc()
        else:
            self._put(before, after, decisions, effects)

    def _meet_deadlines(self, event_time_ms: int, effects: Effects) -> None:
        now_ms = self._clock.active_ms
        for group_id in self._deadlines.pop_due(now_ms):
            group = self._groups[group_id]
            if group.verdict == "open":
                after, decisions = expire(
                    group, event_time_ms=event_time_ms, log_ms=now_ms, rules=self._rules_of(group)
                )
                self._put(group, after, decisions, effects)
            else:
                del self._groups[group_id]
                effects.writes["group", group_id] = None

    def _rules_of(self, group: GroupState) -> Rules:
        return self._rules.of(group.run_id, group.channel)

    def _put(
        self,
        before: GroupState | None,
        after: GroupState,
        decisions: Sequence[GroupDecision],
        effects: Effects,
    ) -> None:
        self._open += (after.verdict == "open") - (before is not None and before.verdict == "open")
        self._groups[after.group_id] = after
        self._deadlines.set(after.group_id, due_ms(after, self._rules_of(after)))
        effects.writes["group", after.group_id] = encode_state(after)
        for decision in decisions:
            counter("processor_decisions", "type").labels(str(decision.__struct_config__.tag)).inc()
            effects.outputs.append(OutRecord.of(GROUPS, decision))
