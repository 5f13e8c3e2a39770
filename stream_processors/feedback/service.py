"""Reads what the trainer says and repeats it: at least once, in order, offsets committed afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Place
from agentworld.platform.kafka import group_name
from agentworld.platform.log import OutRecord
from agentworld.platform.reader import KafkaReader
from agentworld.platform.settings import KafkaSettings
from stream_processors.feedback.repeating import SOURCES, repeated
from stream_processors.outbox import Submitter
from stream_processors.topics import APP_NAME

logger = logging.getLogger(__name__)

_POLL_S = 1.0
_RETRY_S = 1.0


async def repeat_feedback(
    kafka: KafkaSettings, submitter: Submitter, *, partitions: int, instance: str
) -> None:
    """Repeat until cancelled; while the broker is away, try again."""
    # One thread for all calls of the consumer: it is closed only once its last poll has returned.
    thread = ThreadPoolExecutor(1, thread_name_prefix="feedback")
    try:
        while True:
            try:
                await _session(kafka, submitter, thread, partitions=partitions, instance=instance)
            except Unavailable as exc:
                logger.warning("the trainer's events are not followed now: %s", exc)
                await asyncio.sleep(_RETRY_S)
    finally:
        thread.shutdown(wait=False)


async def _session(
    kafka: KafkaSettings,
    submitter: Submitter,
    thread: ThreadPoolExecutor,
    *,
    partitions: int,
    instance: str,
) -> None:
    loop = asyncio.get_running_loop()
    group = group_name(kafka, APP_NAME, "feedback")
    reader = KafkaReader(
        kafka,
        SOURCES,
        group=group,
        client_id=f"{APP_NAME}-feedback-{instance}",
        instance_id=f"{group}-{instance}",
    )
    try:
        while True:
            records = await loop.run_in_executor(thread, lambda: reader.poll(timeout_s=_POLL_S))
            for record in records:
                outputs = [await _submit(submitter, output) for output in repeated(record, partitions)]
                for acknowledged in outputs:
                    await acknowledged
            if records:
                await loop.run_in_executor(thread, reader.commit)
    finally:
        thread.submit(reader.close)


async def _submit(submitter: Submitter, output: OutRecord) -> Awaitable[Place]:
    while True:
        try:
            return submitter.submit(output)
        except Unavailable:  # its queue is full
            await asyncio.sleep(_RETRY_S)
