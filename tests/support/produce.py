"""Puts built rollouts on a log: registrations, steps, seals, decisions, a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentworld.contract.events import BatchReady, Event, Place, TrajectorySealed
from agentworld.contract.topics import (
    GROUPS,
    READY_BATCHES,
    TRAJECTORIES,
    TRAJECTORY_EVENTS,
    TopicSpec,
)
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.settings import KafkaSettings
from tests.support import builders as b

Publish = Callable[[OutRecord], Awaitable[Place | None]]


async def produce_batch(publish: Publish, *, tasks: int = 3, sequence: int = 0) -> BatchReady:
    """`tasks` groups of two three-step rollouts, in the order in which the services write."""

    async def put(spec: TopicSpec, event: Event) -> Place:
        place = await publish(OutRecord.of(spec, event))
        assert place is not None
        return place

    early: list[Awaitable[Place]] = []
    sealed: dict[str, list[TrajectorySealed]] = {}
    for task in range(tasks):
        prompt_id = f"task-{sequence}-{task}"
        for rollout in range(2):
            name = f"t-{sequence}-{task}-{rollout}"
            steps = b.rollout(name, prompt_id)
            early += [put(TRAJECTORY_EVENTS, event) for event in (b.registered(name, prompt_id), *steps)]
            sealed.setdefault(prompt_id, []).append(
                b.sealed(steps, prompt_id=prompt_id, reward=float(rollout))
            )
    await asyncio.gather(*early)
    groups = []
    for prompt_id, events in sealed.items():
        places = await asyncio.gather(*(put(TRAJECTORIES, event) for event in events))
        groups.append(b.group_ready(list(map(b.member, events, places)), prompt_id))
    await asyncio.gather(*(put(GROUPS, group) for group in groups))
    batch = b.batch_ready(groups, sequence=sequence)
    await put(READY_BATCHES, batch)
    return batch


async def produce_batches(kafka: KafkaSettings, count: int, *, first: int = 0) -> list[BatchReady]:
    """`count` batches through a publisher of their own."""
    publisher = KafkaPublisher(kafka, client_id="test-producer")
    try:
        return [
            await produce_batch(publisher.publish, sequence=first + sequence) for sequence in range(count)
        ]
    finally:
        await publisher.close()
