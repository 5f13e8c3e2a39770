"""The group processor: one partition of `trajectories`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from agentworld.contract.codec import decode
from agentworld.contract.events import (
    ClockTicked,
    Event,
    PolicyPublished,
    TrajectoryRevised,
    TrajectorySealed,
    VerdictGiven,
)
from agentworld.contract.topics import GROUPS, TRAJECTORIES
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.metrics import counter
from stream_processors.clock import Clock, decode_clock, encode_clock
from stream_processors.deadlines import Deadlines
from stream_processors.effects import CLOCK_KEY, Effects, StateKey
from stream_processors.groups.advance import (
    RELEASED,
    SOURCE,
    Now,
    advance,
    due_ms,
    give_verdict,
    meet_deadline,
    revise,
)
from stream_processors.groups.early import EarlyVerdicts
from stream_processors.groups.state import GroupState, decode_state, encode_state
from stream_processors.newest_versions import NewestVersions
from stream_processors.rules import Rules, RuleSource

_PromptKey = tuple[str, str, str]


class GroupProcessor:
    """Waits for the sealed trajectories of each group, and decides whether it may train."""

    source = TRAJECTORIES
    consumer = SOURCE

    def __init__(self, partition: int, rules: RuleSource) -> None:
        self._rules = rules
        self._clock = Clock()
        self._groups: dict[str, GroupState] = {}
        self._early = EarlyVerdicts(partition)
        self._policy_versions = NewestVersions()
        self._released: dict[_PromptKey, set[str]] = defaultdict(set)
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
            elif key[0] == "policy":
                self._policy_versions.load(key[1], value)
            elif key[0] == "early":
                self._early.load(key[1], value)
            else:
                self._keep(None, decode_state(value))
        return Effects()

    def process(self, record: Record) -> Effects:
        """Apply one record of `trajectories`."""
        event = decode(self.source, record.value)
        counter("processor_events", "agent", "type").labels("group", type(event).__name__).inc()
        effects = Effects()
        clock = self._clock.advance(event.event_time_ms) if isinstance(event, ClockTicked) else self._clock
        time_passed = clock is not self._clock
        self._clock = clock
        match event:
            case TrajectorySealed():
                self._seal(event, record, effects)
            case TrajectoryRevised() | VerdictGiven():
                self._change(event, record, effects)
            case PolicyPublished():
                self._policy_versions.note(event, effects)
        if time_passed:
            self._meet_deadlines(event.event_time_ms, effects)
            effects.writes[CLOCK_KEY] = encode_clock(clock)
        return effects

    def _seal(self, event: TrajectorySealed, record: Record, effects: Effects) -> None:
        before = self._groups.get(event.group_id)
        rules = self._rules.of(event.run_id, event.channel)
        prompt = event.run_id, event.channel, event.prompt_id
        early = self._early.take(event.group_id, effects) if before is None else ()
        now = self._now(event.event_time_ms, prompt, event.group_id)
        after, outputs = advance(before, event, record.place, now=now, rules=rules, early=early)
        self._put(before, after, outputs, effects)

    def _change(self, event: TrajectoryRevised | VerdictGiven, record: Record, effects: Effects) -> None:
        before = self._groups.get(event.group_id)
        if before is None:
            if isinstance(event, VerdictGiven):
                self._early.keep(event, record.offset, self._clock.active_ms, effects)
            return
        now = self._now(event.event_time_ms, _prompt_of(before), before.group_id)
        rules = self._rules_of(before)
        if isinstance(event, TrajectoryRevised):
            after, outputs = revise(before, event, now=now, rules=rules)
        else:
            after, outputs = give_verdict(before, event, now=now, rules=rules)
        self._put(before, after, outputs, effects)

    def _meet_deadlines(self, event_time_ms: int, effects: Effects) -> None:
        now_ms = self._clock.active_ms
        effects.outputs += self._early.expired(now_ms, self._rules.of("", "").closed_ttl_ms, effects)
        for group_id in self._deadlines.pop_due(now_ms):
            group = self._groups[group_id]
            if group.verdict in {"open", "held"}:
                now = self._now(event_time_ms, _prompt_of(group), group_id)
                after, outputs = meet_deadline(group, now=now, rules=self._rules_of(group))
                self._put(group, after, outputs, effects)
            else:
                del self._groups[group_id]
                self._forget_release(group)
                effects.writes["group", group_id] = None

    def _forget_release(self, group: GroupState) -> None:
        prompt = _prompt_of(group)
        known = self._released.get(prompt)
        if known is not None:
            known.discard(group.group_id)
            if not known:
                del self._released[prompt]

    def _now(self, event_time_ms: int, prompt: _PromptKey, group_id: str) -> Now:
        return Now(
            event_time_ms=event_time_ms,
            log_ms=self._clock.active_ms,
            policy_versions=self._policy_versions,
            earlier_groups=self._earlier(prompt, group_id),
        )

    def _earlier(self, prompt: _PromptKey, group_id: str) -> list[str]:
        return sorted(self._released.get(prompt, set()) - {group_id})

    def _rules_of(self, group: GroupState) -> Rules:
        return self._rules.of(group.run_id, group.channel)

    def _put(
        self, before: GroupState | None, after: GroupState, outputs: Sequence[Event], effects: Effects
    ) -> None:
        if after is before:
            counter("processor_duplicates", "agent").labels("group").inc()
            return
        self._keep(before, after)
        effects.writes["group", after.group_id] = encode_state(after)
        for event in outputs:
            counter("processor_decisions", "type").labels(str(event.__struct_config__.tag)).inc()
            effects.outputs.append(OutRecord.of(GROUPS, event))

    def _keep(self, before: GroupState | None, after: GroupState) -> None:
        self._open += (after.verdict == "open") - (before is not None and before.verdict == "open")
        self._groups[after.group_id] = after
        if after.verdict in RELEASED:
            self._released[_prompt_of(after)].add(after.group_id)
        else:
            self._forget_release(after)
        due = due_ms(after, self._rules_of(after))
        if due is None:
            self._deadlines.clear(after.group_id)
        else:
            self._deadlines.set(after.group_id, due)


def _prompt_of(group: GroupState) -> _PromptKey:
    return group.run_id, group.channel, group.prompt_id
