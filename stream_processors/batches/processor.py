"""The batch processor: one partition of `groups`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice

from agentworld.contract.codec import decode
from agentworld.contract.events import BatchConsumed, ClockTicked, GroupDecision, PolicyPublished
from agentworld.contract.topics import GROUPS, READY_BATCHES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.metrics import counter, gauge
from stream_processors.batches.advance import (
    SOURCE,
    advance,
    batch,
    consumed,
    due_ms,
    is_named,
    next_record,
    repaired,
    replace,
    stale,
    without,
)
from stream_processors.batches.orders import ORDERS
from stream_processors.batches.staleness import lag_of, stale_verdict
from stream_processors.batches.state import (
    ChannelState,
    GroupEntry,
    decode_channel,
    decode_entry,
    encode_state,
)
from stream_processors.clock import Clock, decode_clock, encode_clock
from stream_processors.deadlines import Deadlines
from stream_processors.effects import CLOCK_KEY, Effects, StateKey
from stream_processors.newest_versions import NewestVersions
from stream_processors.rules import Rules, RuleSource

_ChannelName = tuple[str, str]

REMEMBERED = 20_000
"""Most groups of a partition that are remembered after they left or were withdrawn. Log time alone would
not do: it stands still here while no group waits with a linger."""


class BatchProcessor:
    """Queues ready groups per run and channel and releases them in batches."""

    source = GROUPS
    consumer = SOURCE

    def __init__(self, partition: int, rules: RuleSource, *, remembered: int = REMEMBERED) -> None:
        self._partition = partition
        self._rules = rules
        self._remembered = remembered
        self._clock = Clock()
        self._channels: dict[_ChannelName, ChannelState] = {}
        self._entries: dict[str, GroupEntry] = {}
        self._pending: dict[_ChannelName, dict[str, GroupEntry]] = defaultdict(dict)
        self._policy_versions = NewestVersions()
        self._decided_now: set[_ChannelName] = set()
        """Channels in which the record in hand has released or dropped groups."""
        self._deadlines = Deadlines()
        self._lingering: set[str] = set()
        """Waiting groups whose linger is not over."""
        self._unasked: set[_ChannelName] = set()
        """Channels with waiting groups, until they are asked once after loading: rules may have changed."""
        self._closed: dict[str, None] = {}
        """Groups that do not wait any more, oldest first."""
        self._offset = 0

    @property
    def open_count(self) -> int:
        """What waits for time to pass; a group that waits for room alone does not."""
        return len(self._lingering) + len(self._unasked)

    def load(self, entries: Mapping[StateKey, bytes]) -> Effects:
        """Take over stored state; finishes a batch whose groups were not all noted as batched."""
        for key, value in entries.items():
            if key == CLOCK_KEY:
                self._clock = decode_clock(value)
            elif key[0] == "channel":
                self._keep_channel(decode_channel(value))
            elif key[0] == "policy":
                self._policy_versions.load(key[1], value)
            else:
                self._keep(decode_entry(value))
        self._closed = dict.fromkeys(sorted(self._closed, key=lambda name: self._entries[name].closed_at))
        self._unasked = {name for name, waiting in self._pending.items() if waiting}
        repairs = Effects()
        for channel in self._channels.values():
            for entry in repaired(channel, self._entries, self._clock.active_ms):
                self._put(entry, repairs)
        return repairs

    def process(self, record: Record) -> Effects:
        """Apply one record of `groups`."""
        event = decode(self.source, record.value)
        counter("processor_events", "agent", "type").labels("batch", type(event).__name__).inc()
        effects = Effects()
        self._decided_now.clear()
        self._offset = record.offset
        clock = self._clock.advance(event.event_time_ms) if isinstance(event, ClockTicked) else self._clock
        time_passed = clock is not self._clock
        self._clock = clock
        match event:
            case GroupDecision():
                self._apply(event, effects)
            case BatchConsumed():
                self._consume(event, effects)
            case PolicyPublished():
                self._policy_versions.note(event, effects)
        if time_passed:
            self._meet_deadlines(event.event_time_ms, effects)
            effects.writes[CLOCK_KEY] = encode_clock(clock)
        self._forget_oldest(effects)
        # What leaves depends on all groups together: state must never be ahead for some of them only.
        effects.decisive = any(key != CLOCK_KEY for key in effects.writes)
        return effects

    def waiting(self) -> list[str]:
        """Groups that wait for their batch, by arrival."""
        entries = [entry for waiting in self._pending.values() for entry in waiting.values()]
        return [entry.group_id for entry in sorted(entries, key=lambda entry: entry.arrival)]

    def flush(self, event_time_ms: int) -> Effects:
        """Release what waits in short batches: at the end of a replay nothing more comes."""
        effects = Effects()
        for name in sorted(self._pending):
            while self._pending[name]:
                if not self._drop_stale(name, event_time_ms, effects):
                    self._release(name, "flush", event_time_ms, effects)
        return effects

    def _apply(self, event: GroupDecision, effects: Effects) -> None:
        name = event.run_id, event.channel
        known = self._channels.get(name) or ChannelState(run_id=event.run_id, channel=event.channel)
        before = self._entries.get(event.group_id)
        channel, entry = advance(known, before, event, log_ms=self._clock.active_ms)
        if entry is None:
            return
        if entry is before:
            counter("processor_duplicates", "agent").labels("batch").inc()
            return
        self._put_channel(channel, effects)
        self._put(entry, effects)
        self._release_due(name, event.event_time_ms, effects)

    def _consume(self, event: BatchConsumed, effects: Effects) -> None:
        name = event.run_id, event.channel
        known = self._channels.get(name)
        channel = consumed(known, event.batch_id) if known is not None else None
        if channel is None or channel is known:
            return
        self._put_channel(channel, effects)
        self._release_due(name, event.event_time_ms, effects)

    def _meet_deadlines(self, event_time_ms: int, effects: Effects) -> None:
        now_ms = self._clock.active_ms
        for name in sorted(self._unasked):
            self._release_due(name, event_time_ms, effects)
        self._unasked.clear()
        for group_id in self._deadlines.pop_due(now_ms):
            self._lingering.discard(group_id)
            entry = self._entries[group_id]
            due = due_ms(entry, self._rules_of(entry))
            if due is None or due > now_ms:
                continue
            if entry.status == "pending":
                self._release_due((entry.run_id, entry.channel), event_time_ms, effects)
            elif is_named(self._channels[entry.run_id, entry.channel], group_id):
                self._deadlines.set(group_id, now_ms + self._rules_of(entry).closed_ttl_ms)
            else:
                self._forget(group_id, effects)

    def _forget_oldest(self, effects: Effects) -> None:
        excess = max(0, len(self._closed) - self._remembered)
        for group_id in list(islice(self._closed, excess)):
            entry = self._entries[group_id]
            if not is_named(self._channels[entry.run_id, entry.channel], group_id):
                self._forget(group_id, effects)

    def _forget(self, group_id: str, effects: Effects) -> None:
        del self._entries[group_id]
        del self._closed[group_id]
        self._deadlines.clear(group_id)
        effects.writes["group", group_id] = None

    def _release_due(self, name: _ChannelName, event_time_ms: int, effects: Effects) -> None:
        """Release full batches, and short ones after the linger, while the trainer keeps up."""
        rules = self._rules.of(*name).batch
        while waiting := self._pending[name]:
            backlog = len(self._channels[name].unconsumed)
            if rules.max_unconsumed and backlog >= rules.max_unconsumed:
                return
            lingered = rules.linger_ms and any(
                entry.since_ms + rules.linger_ms <= self._clock.active_ms for entry in waiting.values()
            )
            if len(waiting) < rules.groups and not lingered:
                return
            if self._drop_stale(name, event_time_ms, effects):
                continue
            reason = "full" if len(waiting) >= rules.groups else "linger"
            self._release(name, reason, event_time_ms, effects)

    def _chosen(self, name: _ChannelName) -> list[GroupEntry]:
        """The groups that would leave next."""
        rules = self._rules.of(*name).batch
        order = ORDERS[rules.order]
        return sorted(self._pending[name].values(), key=lambda entry: order(entry, rules))[: rules.groups]

    def _drop_stale(self, name: _ChannelName, event_time_ms: int, effects: Effects) -> bool:
        """Take groups that went stale out of the next batch; True where there were any."""
        limit = self._rules.of(*name).batch.max_policy_lag
        dropped = []
        for entry in self._chosen(name) if limit >= 0 else ():
            lag = lag_of(entry, self._policy_versions)
            if lag is None or lag.versions <= limit or entry.exempt:
                continue
            dropped.append(entry)
            verdict = stale_verdict(entry, lag, limit=limit, event_time_ms=event_time_ms, source=SOURCE)
            counter("processor_decisions", "type").labels("group_stale").inc()
            effects.outputs.append(OutRecord.of(TRAJECTORY_EVENTS, verdict))
        if dropped:
            self._put_channel(without(self._deciding(name), dropped), effects)
            for entry in dropped:
                self._put(stale(entry, self._clock.active_ms), effects)
        return bool(dropped)

    def _release(self, name: _ChannelName, reason: str, event_time_ms: int, effects: Effects) -> None:
        channel, entries, event = batch(
            self._deciding(name),
            self._chosen(name),
            reason=reason,
            event_time_ms=event_time_ms,
            log_ms=self._clock.active_ms,
            rules=self._rules.of(*name),
        )
        counter("processor_decisions", "type").labels("batch_ready").inc()
        effects.outputs.append(OutRecord.of(READY_BATCHES, event))
        self._put_channel(channel, effects)
        for entry in entries:
            self._put(entry, effects)

    def _deciding(self, name: _ChannelName) -> ChannelState:
        """The channel for a decision; what the record in hand decides there is repaired together."""
        channel = self._channels[name]
        if name not in self._decided_now:
            self._decided_now.add(name)
            channel = next_record(channel)
        return channel

    def _put_channel(self, channel: ChannelState, effects: Effects) -> None:
        self._keep_channel(channel)
        key = ("channel", channel.run_id, channel.channel)
        effects.writes[key] = encode_state(channel)

    def _keep_channel(self, channel: ChannelState) -> None:
        name = channel.run_id, channel.channel
        self._channels[name] = channel
        gauge("processor_unconsumed_batches", "run", "channel").labels(*name).set(len(channel.unconsumed))

    def _put(self, entry: GroupEntry, effects: Effects) -> None:
        if entry.status != "pending":
            entry = replace(entry, closed_at=self._offset)
        self._keep(entry)
        effects.writes["group", entry.group_id] = encode_state(entry)

    def _rules_of(self, entry: GroupEntry) -> Rules:
        return self._rules.of(entry.run_id, entry.channel)

    def _keep(self, entry: GroupEntry) -> None:
        name = entry.run_id, entry.channel
        self._entries[entry.group_id] = entry
        self._closed.pop(entry.group_id, None)
        if entry.status == "pending":
            self._pending[name][entry.group_id] = entry
        else:
            self._pending[name].pop(entry.group_id, None)
            self._closed[entry.group_id] = None
        gauge("processor_waiting_groups", "run", "channel").labels(*name).set(len(self._pending[name]))
        self._lingering.discard(entry.group_id)
        due = due_ms(entry, self._rules_of(entry))
        if due is None:
            self._deadlines.clear(entry.group_id)
            return
        self._deadlines.set(entry.group_id, due)
        if entry.status == "pending" and due > self._clock.active_ms:
            self._lingering.add(entry.group_id)
