"""Ends a worker that has records to read and gets no further: Faust consumers are known to stall."""

from __future__ import annotations

import asyncio
import logging
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from agentworld.contract.errors import Unavailable
from agentworld.platform.kafka import admin_client, consumer_config, topic_name
from agentworld.platform.settings import KafkaSettings
from stream_processors.topics import APP_NAME
from stream_processors.worker import Worker

logger = logging.getLogger(__name__)

_At = tuple[str, int]
_REQUEST_TIMEOUT_S = 10


async def watch_stall(worker: Worker, kafka: KafkaSettings, timeout_ms: int) -> None:
    """Fail `worker` when it is not ready, or commits nothing of a partition with lag, for `timeout_ms`.

    A broker that is away is no stall.
    """
    admin = admin_client(kafka)
    # It never subscribes, so it is no member. The admin client's call for a group's offsets is not
    # used: it crashes the process (librdkafka 2.16) when a broker has just come back.
    group = Consumer(consumer_config(kafka, group=topic_name(kafka, APP_NAME), client_id="stall-watch"))
    behind_since: dict[tuple[_At, int], float] = {}
    not_ready_since = time.monotonic()
    while True:
        await asyncio.sleep(timeout_ms / 4000)
        now = time.monotonic()
        try:
            positions = [
                TopicPartition(topic_name(kafka, stage.source.name), partition)
                for stage in worker.stages
                for partition in stage.partitions
            ]
            behind = await asyncio.to_thread(_behind, admin, group, positions)
        except KafkaException as exc:
            logger.warning("no answer about offsets: %s", exc.args[0].str())
            behind_since, not_ready_since = {}, now
            continue
        not_ready_since = now if worker.ready else not_ready_since
        behind_since = {at: behind_since.get(at, now) for at in behind}
        stuck = [at for at, since in behind_since.items() if now - since >= timeout_ms / 1000]
        if stuck:
            worker.fail(Unavailable(f"stalled: nothing committed for {timeout_ms} ms, stuck at {stuck}"))
        elif now - not_ready_since >= timeout_ms / 1000:
            worker.fail(Unavailable(f"stalled: no partitions assigned and recovered for {timeout_ms} ms"))


def _behind(
    admin: AdminClient, group: Consumer, positions: list[TopicPartition]
) -> dict[tuple[_At, int], int]:
    """Lag of partitions that have one, by partition and committed offset (-1: none yet)."""
    if not positions:
        return {}
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    answer = group.committed(positions, timeout=_REQUEST_TIMEOUT_S)
    ends = admin.list_offsets(dict.fromkeys(positions, latest), request_timeout=_REQUEST_TIMEOUT_S)
    end_offsets = {(tp.topic, tp.partition): end.result().offset for tp, end in ends.items()}
    committed = {(tp.topic, tp.partition): tp.offset for tp in answer}
    fresh = [tp for tp in positions if committed.get((tp.topic, tp.partition), -1) < 0]
    starts: dict[_At, int] = {}
    if fresh:
        found = admin.list_offsets(dict.fromkeys(fresh, earliest), request_timeout=_REQUEST_TIMEOUT_S)
        starts = {(tp.topic, tp.partition): start.result().offset for tp, start in found.items()}
    return {
        (at, max(-1, committed.get(at, -1))): end - starts.get(at, committed.get(at, 0))
        for at, end in end_offsets.items()
        if end > starts.get(at, committed.get(at, 0))
    }
