"""What is done to the stack while rollouts go on. Each is a phase with a run of its own."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from agentworld.contract.codec import decode
from agentworld.contract.events import (
    RewardAssigned,
    StepCaptured,
    TrajectoryCompleted,
    TrajectoryRegistered,
)
from agentworld.contract.topics import GROUPS, TRAJECTORIES, TRAJECTORY_EVENTS, TopicSpec
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.scan import scan_topic
from infra.local.ports import free_port
from infra.local.stack import LocalStack
from tests.chaos.expected import Rollout
from tests.chaos.load import Load

_HEALTHY_S = 90.0
_POLL_S = 0.05
_IN_TURN = 3
"""So many processes are killed in turn; of more, one that works is drawn."""
_WHILE_STARTING = 0.2
"""Share of the kills that do not wait until the process works."""


@dataclass
class Phase:
    """One phase under way."""

    stack: LocalStack
    load: Load
    rng: random.Random
    kills: int = 0
    kills_at_work: int = 0
    """Of processes that were healthy then."""
    done: int = 0
    """How often the fault happened."""
    poison: list[tuple[TopicSpec, bytes]] = field(default_factory=list)

    async def kill(self, name: str) -> None:
        """kill -9 at a random moment: mostly once it works, sometimes while it still starts."""
        process = self.stack.process(name)
        starting = self.rng.random() < _WHILE_STARTING
        async with asyncio.timeout(_HEALTHY_S):
            while process.pid is None or not (starting or await self.works(name)):
                await asyncio.sleep(_POLL_S)
        await asyncio.sleep(self.rng.uniform(0.05, 1.0))
        self.kills_at_work += await self.works(name)
        await asyncio.to_thread(process.kill)
        self.kills += 1

    async def works(self, name: str) -> bool:
        """Whether the process is healthy."""
        return name not in await asyncio.to_thread(self.stack.problems)

    async def healthy(self) -> None:
        """Wait until every process is able to work."""
        await asyncio.to_thread(self.stack.wait_healthy, timeout_s=_HEALTHY_S)


def _kills(names: Sequence[str], *, settle: bool) -> Callable[[Phase, int], Awaitable[None]]:
    async def act(phase: Phase, times: int) -> None:
        for number in range(times):
            if len(names) > _IN_TURN:
                problems = await asyncio.to_thread(phase.stack.problems)
                working = [name for name in names if name not in problems]
                await phase.kill(phase.rng.choice(working or names))
            else:
                await phase.kill(names[number % len(names)])
            phase.done += 1
            if settle:
                await phase.healthy()
        await phase.healthy()

    return act


async def pause_broker(phase: Phase, times: int) -> None:
    """SIGSTOP for 20 s: connections stand, nothing is answered."""
    for _ in range(times):
        pid = phase.stack.process("broker").pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(20)
        finally:
            os.kill(pid, signal.SIGCONT)
        phase.done += 1
        await phase.healthy()


async def deliver_again(phase: Phase, times: int) -> None:
    """Rollouts whose events are written to the log again, shuffled, while they go on and after."""
    publisher = KafkaPublisher(phase.stack.kafka, client_id="chaos-redelivery")
    try:
        for _ in range(times):
            records = await asyncio.to_thread(_records_of, phase)
            phase.rng.shuffle(records)
            for record in records:
                await publisher.publish(record)
            phase.done += len(records)
            await asyncio.sleep(0.5)
    finally:
        await publisher.close()


def _records_of(phase: Phase) -> list[OutRecord]:
    mine = {rollout.trajectory_id for rollout in phase.load.expected.rollouts}
    kept = []
    for record in scan_topic(phase.stack.kafka, TRAJECTORY_EVENTS):
        if dict(record.headers).get("trajectory_id", b"").decode() in mine:
            kept.append(OutRecord(record.topic, record.key, record.value or b"", record.headers))
    return kept


async def reorder(phase: Phase, times: int) -> None:
    """Whole rollouts copied under other names, their events shuffled, each delivered twice.

    Within the grace: the completion may come first, the registration last.
    """
    publisher = KafkaPublisher(phase.stack.kafka, client_id="chaos-reorder")
    try:
        while len(finished := [r for r in phase.load.expected.rollouts if r.completed]) < times:
            await asyncio.sleep(_POLL_S)
        copies = [finished[number % len(finished)] for number in range(times)]
        events = await asyncio.to_thread(_events_by_trajectory, phase)
        for number, original in enumerate(copies):
            copy, records = _copied(original, events[original.trajectory_id], number)
            records += records
            phase.rng.shuffle(records)
            for record in records:
                await publisher.publish(record)
            phase.load.expected.rollouts.append(copy)
            phase.done += 1
    finally:
        await publisher.close()


_OfRollout = TrajectoryRegistered | StepCaptured | TrajectoryCompleted | RewardAssigned


def _events_by_trajectory(phase: Phase) -> dict[str, list[_OfRollout]]:
    found: dict[str, dict[str, _OfRollout]] = {}
    for record in scan_topic(phase.stack.kafka, TRAJECTORY_EVENTS):
        headers = dict(record.headers)
        if headers.get("trajectory_id", b"").decode().startswith(phase.load.expected.run_id):
            event = decode(TRAJECTORY_EVENTS, record.value)
            if isinstance(event, _OfRollout):
                found.setdefault(event.trajectory_id, {})[event.event_id] = event
    return {name: list(events.values()) for name, events in found.items()}


def _copied(original: Rollout, events: Sequence[_OfRollout], number: int) -> tuple[Rollout, list[OutRecord]]:
    name = f"{original.trajectory_id}-copy{number}"
    prompt_id, group = f"{original.prompt_id}-copy{number}", f"{original.group_id}-copy{number}"
    renamed: dict[str, str] = {
        event.step_id: f"{event.step_id}-{number}" for event in events if isinstance(event, StepCaptured)
    }
    records = []
    for event in events:
        changes: dict[str, object] = {
            "trajectory_id": name,
            "prompt_id": prompt_id,
            "event_id": f"{event.event_id}-{number}",
        }
        if isinstance(event, TrajectoryRegistered):
            changes |= {"group_id": group, "rollouts": 1}
        elif isinstance(event, StepCaptured):
            base = event.prompt.base_step_id
            prompt = msgspec.structs.replace(event.prompt, base_step_id=base and renamed[base])
            changes |= {"step_id": renamed[event.step_id], "prompt": prompt}
        records.append(OutRecord.of(TRAJECTORY_EVENTS, msgspec.structs.replace(event, **changes)))
    copy = Rollout(
        trajectory_id=name,
        prompt_id=prompt_id,
        run_id=original.run_id,
        group_id=group,
        rollouts=1,
        registered=True,
        answered=[renamed[step_id] for step_id in original.answered if step_id in renamed],
        completed=True,
    )
    return copy, records


async def rebalance(phase: Phase, times: int) -> None:
    """A third worker joins while groups are half full, works for a while, and leaves."""
    for number in range(times):
        port = free_port()
        environment = {
            **phase.stack.environment_of("processors-0"),
            "AGENTWORLD_PROCESSORS_INSTANCE": f"guest-{number}",
            "AGENTWORLD_PROCESSORS_HEALTH_PORT": str(port),
            "AGENTWORLD_PROCESSORS_DATA_DIR": str(phase.stack.options.data_dir / f"guest-{number}"),
        }
        log = phase.stack.options.data_dir / "logs" / "guest.log"
        with log.open("ab") as out:
            guest = subprocess.Popen(
                [sys.executable, "-m", "stream_processors"], env=environment, stdout=out, stderr=out
            )
        try:
            await asyncio.sleep(7)
        finally:
            guest.send_signal(signal.SIGTERM)
            await asyncio.to_thread(guest.wait, 60)
        phase.done += 1
        await phase.healthy()


async def poison(phase: Phase, times: int) -> None:
    """Bytes that are no event, and JSON nested without end, in three topics."""
    publisher = KafkaPublisher(phase.stack.kafka, client_id="chaos-poison")
    kinds = (b"{broken", b"\xff\xfe\x00", b"[" * 100_000, b'{"type":"step_captured"}')
    try:
        for number in range(times):
            spec = (TRAJECTORY_EVENTS, TRAJECTORIES, GROUPS)[number % 3]
            value = kinds[number % len(kinds)] + str(number).encode()
            key = f"{phase.load.expected.run_id}-p{number % 5}".encode()
            await publisher.publish(OutRecord(spec.name, key, value))
            phase.poison.append((spec, value))
            phase.done += 1
            await asyncio.sleep(0.1)
    finally:
        await publisher.close()


@dataclass(frozen=True)
class Fault:
    """A row of the table."""

    name: str
    act: Callable[[Phase, int], Awaitable[None]]
    times: int
    """In a run of the usual length."""


GATEWAYS = ("gateway-0", "gateway-1")
WORKERS = ("processors-0", "processors-1")
ANYONE = (*GATEWAYS, *WORKERS, "sink", "clickhouse")

ALL = (
    Fault("gateway killed", _kills(GATEWAYS, settle=False), 12),
    Fault("processors killed", _kills(WORKERS, settle=False), 8),
    Fault("sink killed", _kills(("sink",), settle=False), 5),
    Fault("broker killed", _kills(("broker",), settle=True), 3),
    Fault("anyone killed", _kills(ANYONE, settle=False), 24),
    Fault("broker paused 20 s", pause_broker, 1),
    Fault("delivered again", deliver_again, 3),
    Fault("delivered out of order", reorder, 12),
    Fault("rebalanced", rebalance, 1),
    Fault("poisoned", poison, 24),
)
