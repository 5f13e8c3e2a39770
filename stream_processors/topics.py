"""The topics that the worker needs: the log's own, and one changelog per processor."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from agentworld.contract.errors import ContractViolation, Unavailable
from agentworld.contract.topics import (
    ALL_TOPICS,
    GROUPS,
    READY_BATCHES,
    TRAJECTORIES,
    TRAJECTORY_EVENTS,
    MiB,
    TopicSpec,
)
from agentworld.platform.kafka import admin_client, ensure_topics, topic_name
from agentworld.platform.settings import KafkaSettings

logger = logging.getLogger(__name__)

APP_NAME = "stream-processors"
TABLES = {"trajectory": "trajectory-state", "group": "group-state", "batch": "batch-state"}
"""Table of each processor."""

_CHANGELOG_DEFAULTS = {
    "segment.bytes": str(32 * MiB),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.2",
}
_CHANGELOG_LIMITS = {"retention.ms": "-1", "retention.bytes": "-1"}
# State leaves a changelog by compaction alone, whatever a deployment sets for the other topics.
_RETRY_S = 1.0


def changelog_name(table: str) -> str:
    """Name of a table's changelog topic without prefix, as Faust derives it."""
    return f"{APP_NAME}-{table}-changelog"


def _changelog_spec(table: str) -> TopicSpec:
    return TopicSpec(
        name=changelog_name(table),
        key=lambda _: "",
        events=(),
        retention=timedelta(days=7),
        cleanup="compact",
        max_message_bytes=TRAJECTORY_EVENTS.max_message_bytes + MiB,
        dead_letters=False,
    )


async def prepare_topics(settings: KafkaSettings) -> int:
    """Create what is missing, waiting for a broker that is away; returns the partition count.

    Raises `ContractViolation` where the topics are not co-partitioned.
    """
    while True:
        try:
            return await asyncio.to_thread(_prepare, settings)
        except Unavailable as exc:
            logger.warning("waiting for the broker: %s", exc)
            await asyncio.sleep(_RETRY_S)


def _prepare(settings: KafkaSettings) -> int:
    ensure_topics(settings, ALL_TOPICS, timeout_s=10)
    partitions = _partitions(settings)
    config = _CHANGELOG_DEFAULTS | settings.topic_config | _CHANGELOG_LIMITS
    changelogs = settings.model_copy(update={"topic_config": config, "partitions": partitions})
    ensure_topics(changelogs, [_changelog_spec(table) for table in TABLES.values()], timeout_s=10)
    return partitions


def _partitions(settings: KafkaSettings) -> int:
    metadata = admin_client(settings).list_topics(timeout=10).topics
    counts = {
        spec.name: len(metadata[topic_name(settings, spec.name)].partitions)
        for spec in (TRAJECTORY_EVENTS, TRAJECTORIES, GROUPS, READY_BATCHES)
    }
    if len(set(counts.values())) != 1:
        raise ContractViolation(
            f"the topics must have one partition count, but have {counts}: "
            "create them again with equal counts (AGENTWORLD_KAFKA_PARTITIONS)"
        )
    return counts[TRAJECTORY_EVENTS.name]
