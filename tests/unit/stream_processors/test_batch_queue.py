"""What the queue of waiting groups keeps, forgets and shows."""

from __future__ import annotations

from prometheus_client import REGISTRY

from agentworld.contract.codec import decode
from agentworld.contract.events import (
    BatchReady,
    Event,
    GroupPartial,
    GroupReady,
    GroupRejected,
    GroupRevised,
)
from agentworld.contract.topics import GROUPS, READY_BATCHES
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from stream_processors.batches.processor import REMEMBERED, BatchProcessor
from stream_processors.effects import Effects, StateKey, merge_writes
from stream_processors.pipeline import tick
from stream_processors.rules import Rules
from tests.support.rules import rules as limits
from tests.unit.stream_processors.rollouts import T0_MS
from tests.unit.stream_processors.test_batch_crashes import consumed, decision


class Queue:
    """One batch processor, its log and what it stored."""

    def __init__(self, remembered: int = REMEMBERED, **rules: object) -> None:
        self.log = InMemoryLog(partitions=1)
        self.stored: dict[StateKey, bytes] = {}
        self.batches: list[BatchReady] = []
        self._remembered = remembered
        self.start(limits(**rules))

    def start(self, rules: Rules) -> None:
        self.processor = BatchProcessor(0, rules, remembered=self._remembered)
        self._store(self.processor.load(dict(self.stored)))

    def feed(self, *events: Event) -> None:
        for event in events:
            self._process(OutRecord.of(GROUPS, event, partition=0))

    def pass_time(self, seconds: int) -> None:
        """Ticks as the worker writes them: only while something waits for time."""
        for second in range(1, seconds + 1):
            if self.processor.open_count:
                self._process(tick(GROUPS, 0, T0_MS + 1_000 * second))

    def left(self) -> list[list[tuple[str, int]]]:
        return [[(group.group_id, group.version) for group in batch.groups] for batch in self.batches]

    def _process(self, record: OutRecord) -> None:
        self.log.append(record)
        effects = self.processor.process(self.log.records(GROUPS.name)[-1])
        self._store(effects)
        self.batches += [
            decode(READY_BATCHES, out.value) for out in effects.outputs if out.topic == READY_BATCHES.name
        ]

    def _store(self, effects: Effects) -> None:
        for key, value in merge_writes(effects.writes.items()):
            if value is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = value


def ready(name: str, version: int = 1, kind: type[Event] = GroupReady, *, number: int = 1) -> Event:
    event: Event = decision(kind, name, version, number, T0_MS)
    return event


def test_a_rejected_group_never_leaves_and_one_released_later_waits_again_at_the_end() -> None:
    queue = Queue(batch_groups=2)
    queue.feed(ready("a"), ready("a", 2, GroupRejected), ready("b"), ready("a", 3), ready("c"), ready("d"))
    assert queue.left() == [[("b", 1), ("a", 3)], [("c", 1), ("d", 1)]]


def test_a_batch_lists_its_groups_as_they_are_when_it_leaves() -> None:
    queue = Queue(batch_groups=2)
    queue.feed(ready("a", 1, GroupPartial, number=1), ready("a", 2, GroupRevised, number=2))
    queue.feed(ready("a", 3, GroupReady, number=2), ready("a", 2, GroupRevised, number=4), ready("b"))
    assert queue.left() == [[("a", 3), ("b", 1)]]
    [member] = queue.batches[0].groups[0].members
    assert (member.place.offset, member.reward) == (2, 1.0)


def test_time_is_asked_for_only_while_a_linger_runs() -> None:
    queue = Queue(batch_groups=2, batch_linger_ms=3_000, batch_max_unconsumed=1)
    queue.feed(ready("a"), ready("b"), ready("c"))
    assert queue.processor.open_count == 1
    queue.pass_time(20)
    assert queue.processor.open_count == 0, "it is due, and waits for room"
    queue.feed(consumed(queue.batches[0].batch_id, T0_MS))
    assert queue.left() == [[("a", 1), ("b", 1)], [("c", 1)]]


def test_what_other_rules_let_go_leaves_after_a_restart_without_a_further_event() -> None:
    queue = Queue(batch_groups=1, batch_max_unconsumed=1)
    queue.feed(ready("a"), ready("b"), ready("c"))
    assert queue.left() == [[("a", 1)]]
    queue.start(limits(batch_groups=1))
    queue.pass_time(3)
    assert queue.left() == [[("a", 1)], [("b", 1)], [("c", 1)]]
    assert queue.processor.open_count == 0


def test_groups_that_left_are_forgotten_by_number_where_no_time_passes() -> None:
    queue = Queue(remembered=3, batch_groups=2)
    names = [f"a{number}" for number in range(20)]
    queue.feed(*(ready(name) for name in names))
    kept = [key[1] for key in queue.stored if key[0] == "group"]
    assert sorted(kept) == ["a17", "a18", "a19"]
    queue.feed(ready("a19"), ready("a18"))
    assert len(queue.batches) == 10
    queue.start(limits(batch_groups=2))
    queue.feed(ready("b"), ready("c"))
    assert sorted(key[1] for key in queue.stored if key[0] == "group") == ["a19", "b", "c"]


def test_waiting_groups_and_unconsumed_batches_are_shown() -> None:
    queue = Queue(batch_groups=1, batch_max_unconsumed=2)
    queue.feed(*(ready(name) for name in "abcd"))

    def shown(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"agentworld_{name}", {"run": "r", "channel": "train"})

    assert (shown("processor_waiting_groups"), shown("processor_unconsumed_batches")) == (2, 2)
    queue.feed(consumed(queue.batches[0].batch_id, T0_MS))
    assert (shown("processor_waiting_groups"), shown("processor_unconsumed_batches")) == (1, 2)
