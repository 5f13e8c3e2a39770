"""Ends a worker that has records to read and reads none: Faust consumers are known to stall."""

from __future__ import annotations

import asyncio
import logging
import time

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from agentworld.contract.errors import Unavailable
from agentworld.platform.kafka import admin_client, topic_name
from agentworld.platform.settings import KafkaSettings
from stream_processors.worker import Worker

logger = logging.getLogger(__name__)


async def watch_stall(worker: Worker, kafka: KafkaSettings, timeout_ms: int) -> None:
    """Fail `worker` when it lags without progress, or is not ready, for `timeout_ms`."""
    progress, since = _progress(worker), time.monotonic()
    while True:
        await asyncio.sleep(timeout_ms / 4000)
        now_at = _progress(worker)
        if now_at != progress:
            progress, since = now_at, time.monotonic()
        elif time.monotonic() - since >= timeout_ms / 1000:
            lag = await asyncio.to_thread(_lag, worker, kafka)
            if lag == 0:
                since = time.monotonic()
            elif lag is not None:
                worker.fail(Unavailable(f"stalled: no progress for {timeout_ms} ms, {lag} records behind"))
                return


def _progress(worker: Worker) -> tuple[bool, int]:
    return worker.ready, sum(stage.processed for stage in worker.stages)


def _lag(worker: Worker, kafka: KafkaSettings) -> int | None:
    """Records not yet applied; 1 where the worker is not ready; None where the broker is away."""
    positions = {
        TopicPartition(topic_name(kafka, stage.source.name), partition): offset
        for stage in worker.stages
        for partition, offset in stage.next_offsets.items()
    }
    if not positions:
        return 0 if worker.ready else 1
    try:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        admin = admin_client(kafka)
        futures = admin.list_offsets(dict.fromkeys(positions, latest), request_timeout=10)
        ends: dict[tuple[str, int], int] = {
            (tp.topic, tp.partition): future.result().offset for tp, future in futures.items()
        }
    except KafkaException as exc:
        logger.warning("end offsets are not to be had: %s", exc.args[0].str())
        return None
    return sum(max(0, ends[tp.topic, tp.partition] - offset) for tp, offset in positions.items())
