"""Which records repeat a trainer's event, and where. Pure."""

from __future__ import annotations

from agentworld.contract.codec import decode
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import BatchConsumed, PolicyPublished
from agentworld.contract.topics import (
    GROUPS,
    POLICY_VERSIONS,
    TOPICS_BY_NAME,
    TRAINING_EVENTS,
    TRAJECTORIES,
    TopicSpec,
)
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import OutRecord, Record

CONSUMER = "stream-processors.feedback"
SOURCES: tuple[TopicSpec, ...] = (TRAINING_EVENTS, POLICY_VERSIONS)


def repeated(record: Record, partitions: int) -> list[OutRecord]:
    """The event of `record` as the processors read it; a dead letter where it cannot be read.

    A consumed batch goes to its run's channel in `groups`. A policy version goes to every one of the
    `partitions` of `groups` and `trajectories`: each decides about steps of any policy.
    """
    spec = TOPICS_BY_NAME[record.topic]
    if not record.value and "compact" in spec.cleanup:
        return []
    try:
        event = decode(spec, record.value)
    except MalformedEvent as exc:
        return [dead_letter(record, reason=exc.reason, detail=str(exc), consumer=CONSUMER)]
    match event:
        case BatchConsumed():
            return [OutRecord.of(GROUPS, event)]
        case PolicyPublished():
            return [
                OutRecord.of(topic, event, partition=partition)
                for topic in (GROUPS, TRAJECTORIES)
                for partition in range(partitions)
            ]
        case _:
            return []
