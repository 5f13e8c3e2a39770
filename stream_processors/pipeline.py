"""The processors driven over an in-memory log, without Faust: tests, and dry runs of a replay."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.contract.topics import TopicSpec
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from stream_processors.clock import clock_ticked
from stream_processors.effects import Effects, StateKey, handle, merge_writes
from stream_processors.feedback.repeating import SOURCES, repeated
from stream_processors.processors import PROCESSORS
from stream_processors.rules import RuleSource


class _Line:
    """One processor on all partitions, with the state that its changelog would hold."""

    def __init__(self, name: str, log: InMemoryLog, rules: RuleSource) -> None:
        self._name = name
        self._log = log
        self._rules = rules
        self._stored: list[dict[StateKey, bytes]] = [{} for _ in range(log.partitions)]
        self.start()

    def start(self) -> None:
        """Load what is stored and read on from what was committed."""
        create = PROCESSORS[self._name]
        self.shards = [create(partition, self._rules) for partition in range(self._log.partitions)]
        for partition, shard in enumerate(self.shards):
            self._keep(partition, shard.load(dict(self._stored[partition])))
        self.source = self.shards[0].source
        self.reader = self._log.reader([self.source], group=f"pipeline.{self._name}")

    def step(self) -> int:
        """Process what is there; returns the number of records."""
        records = self.reader.poll(max_records=10_000, timeout_s=0)
        for record in records:
            effects = handle(self.shards[record.partition], record)
            for output in effects.outputs:
                self._log.append(output)
            self._keep(record.partition, effects)
        return len(records)

    def stored(self) -> list[StateKey]:
        return [key for entries in self._stored for key in entries]

    def _keep(self, partition: int, effects: Effects) -> None:
        for key, value in merge_writes(effects.writes.items()):
            if value is None:
                self._stored[partition].pop(key, None)
            else:
                self._stored[partition][key] = value


class _Feedback:
    """Repeats what the trainer says, as the service does."""

    def __init__(self, log: InMemoryLog) -> None:
        self._log = log
        self.start()

    def start(self) -> None:
        """Read on from what was committed."""
        self.reader = self._log.reader(SOURCES, group="pipeline.feedback")

    def step(self) -> int:
        """Repeat what is there; returns the number of records."""
        records = self.reader.poll(max_records=10_000, timeout_s=0)
        for record in records:
            for output in repeated(record, self._log.partitions):
                self._log.append(output)
        return len(records)


class Pipeline:
    """Feeds the records of `log` through all processors and appends what they write."""

    def __init__(self, log: InMemoryLog, rules: RuleSource) -> None:
        self._log = log
        self._feedback = _Feedback(log)
        self._lines = {name: _Line(name, log, rules) for name in PROCESSORS}

    def run(self) -> int:
        """Process until nothing new is in the log; returns how many records were processed."""
        total = 0
        while processed := self._feedback.step() + sum(line.step() for line in self._lines.values()):
            total += processed
        return total

    def tick(self, now_ms: int) -> int:
        """Carry time to `now_ms` in every partition where something is open, and process that."""
        for line in self._lines.values():
            for partition, shard in enumerate(line.shards):
                if shard.open_count:
                    self._log.append(tick(line.source, partition, now_ms))
        return self.run()

    def commit(self) -> None:
        """Let a restart resume here."""
        self._feedback.reader.commit()
        for line in self._lines.values():
            line.reader.commit()

    def restart(self) -> None:
        """As after a crash: state as it was written, reading from what was committed."""
        self._feedback.start()
        for line in self._lines.values():
            line.start()

    def open_counts(self) -> dict[str, int]:
        """Open entities by processor."""
        return {name: sum(s.open_count for s in line.shards) for name, line in self._lines.items()}

    def stored(self) -> dict[str, Sequence[StateKey]]:
        """Keys of the state that is kept, by processor."""
        return {name: line.stored() for name, line in self._lines.items()}


def tick(source: TopicSpec, partition: int, now_ms: int) -> OutRecord:
    """The record that carries time to `now_ms` in a partition; equal calls give equal records."""
    return OutRecord.of(source, clock_ticked(source, partition, now_ms), partition=partition)
