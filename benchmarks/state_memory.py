"""`python -m benchmarks.state_memory`: what the processors keep of each entity, in memory and changelog."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.contract.delta import Leaf, Prompt, leaf_of, shorten
from agentworld.contract.events import EngineCall, Event, StepCaptured, StepRequest
from agentworld.contract.events.trajectory_events import TrajectoryCompleted, TrajectoryRegistered
from agentworld.contract.ids import derived_id, group_id
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.reports import print_table, write_report
from stream_processors.effects import Effects, merge_writes
from stream_processors.pipeline import tick
from stream_processors.processors import PROCESSORS
from stream_processors.rules import BatchRules, Rules, SealRules

T0_MS = 1_764_500_000_000
RULES = Rules(seal=SealRules(grace_ms=0), batch=BatchRules(groups=10**6))
SIZES = ((0, 0, 0), (5, 200, 100), (20, 200, 100), (50, 1_000, 300))
"""Steps of a trajectory, prompt tokens that each appends, tokens that each samples."""


def rollout(name: str, steps: int, appended: int, sampled: int) -> list[Event]:
    """Registration and steps of one rollout; every prompt extends the turn before."""
    about: dict[str, Any] = {"trajectory_id": name, "prompt_id": name, "source": "bench"}
    events: list[Event] = [
        TrajectoryRegistered(
            event_id=derived_id("registered", name),
            event_time_ms=T0_MS,
            run_id="bench",
            channel="train",
            round=0,
            rollouts=1,
            group_id=group_id("bench", "train", 0, name),
            metadata={"data_source": "bench"},
            **about,
        )
    ]
    leaves: list[Leaf] = []
    ids: list[int] = []
    messages: list[bytes] = []
    for turn in range(steps):
        ids += [100_000 + token % 50_000 for token in range(appended)]
        messages.append(msgspec.json.encode({"role": "user", "content": "word " * (appended * 3 // 4)}))
        prompt = Prompt(ids=list(ids), messages=list(messages), tools=None)
        step = StepCaptured(
            event_id=derived_id("captured", name, turn),
            event_time_ms=T0_MS + turn,
            step_id=derived_id("step", name, turn),
            status="ok",
            request=StepRequest(protocol="chat_completions", model="m", stream=True),
            prompt=shorten(prompt, leaves),
            response_ids=[120_000 + token for token in range(sampled)],
            response_logprobs=[-0.123456 * (1 + token % 7) for token in range(sampled)],
            message=msgspec.Raw(
                msgspec.json.encode({"role": "assistant", "content": "word " * (sampled * 3 // 4)})
            ),
            finish_reason="stop",
            token_source="engine",
            engine=EngineCall(engine="e", policy_version_start=1, policy_version_end=1),
            started_at_ms=T0_MS + turn,
            latency_ms=5.0,
            **about,
        )
        leaf = leaf_of(step, prompt)
        leaves = [leaf, *leaves]
        ids, messages = list(leaf.ids), list(leaf.messages)
        events.append(step)
    return events


class Kept:
    """One processor's partition, with the entries that its changelog holds."""

    def __init__(self, name: str) -> None:
        self.processor = PROCESSORS[name](0, RULES)
        self.stored: dict[tuple[str, ...], bytes] = {}

    def take(self, records: Sequence[OutRecord]) -> list[OutRecord]:
        """Process records; what it writes."""
        log = InMemoryLog(partitions=1)
        for record in records:
            log.append(record)
        outputs: list[OutRecord] = []
        for stored in log.records(self.processor.source.name):
            effects: Effects = self.processor.process(stored)
            outputs += effects.outputs
            for key, value in merge_writes(effects.writes.items()):
                if value is None:
                    self.stored.pop(key, None)
                else:
                    self.stored[key] = value
        return outputs


def measured(name: str, inputs: Sequence[OutRecord]) -> tuple[Kept, int]:
    """The processor after `inputs`, and the memory that it holds then, in bytes.

    The entries' bytes are part of it: the worker keeps them in Faust's table.
    """
    gc.collect()
    tracemalloc.start()
    kept = Kept(name)
    kept.take(inputs)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept, used


def measure(count: int, size: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Rows for `count` trajectories: open, then sealed, their groups, and the groups' places in the queue."""
    trajectories = [rollout(f"t{number}", *size) for number in range(count)]
    opened = [OutRecord.of(TRAJECTORY_EVENTS, event) for events in trajectories for event in events]
    ends: list[OutRecord] = []
    for events in trajectories:
        first = events[0]
        assert isinstance(first, TrajectoryRegistered)
        ends.append(
            OutRecord.of(
                TRAJECTORY_EVENTS,
                TrajectoryCompleted(
                    event_id=derived_id("completed", first.trajectory_id),
                    event_time_ms=T0_MS + 1_000,
                    source="bench",
                    trajectory_id=first.trajectory_id,
                    prompt_id=first.prompt_id,
                    outcome="succeeded",
                ),
            )
        )
    ends += [tick(TRAJECTORY_EVENTS, 0, T0_MS + second * 1_000) for second in (1, 2, 3)]
    sealed = [o for o in Kept("trajectory").take([*opened, *ends]) if o.topic == TRAJECTORIES.name]
    ready = Kept("group").take(sealed)
    rows = []
    for what, name, inputs in (
        ("open trajectory", "trajectory", opened),
        ("sealed trajectory", "trajectory", [*opened, *ends]),
        ("decided group", "group", sealed),
        ("waiting group", "batch", ready),
    ):
        kept, used = measured(name, inputs)
        changelog = sum(len(value) + sum(map(len, key)) for key, value in kept.stored.items())
        rows.append(
            {
                "what": what,
                "steps": size[0],
                "tokens": size[0] * (size[1] + size[2]),
                "memory_bytes": used // count,
                "changelog_bytes": changelog // count,
            }
        )
    return rows


def main() -> None:
    """Measure, print, report."""
    rows = [row for size in SIZES for row in measure(40, size)]
    columns = ("what", "steps", "tokens", "memory_bytes", "changelog_bytes")
    print_table("State per entity", columns, [[row[name] for name in columns] for row in rows])
    write_report("state-memory", {"rows": rows})


if __name__ == "__main__":
    main()
