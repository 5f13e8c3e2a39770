"""Everything a topic holds at this moment, without joining a consumer group's work."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from agentworld.contract.errors import Unavailable
from agentworld.contract.topics import TopicSpec
from agentworld.platform.kafka import consumer_config, topic_name, watermark_offsets
from agentworld.platform.log import Record
from agentworld.platform.reader import to_record
from agentworld.platform.settings import KafkaSettings


def scan_topic(
    settings: KafkaSettings, spec: TopicSpec, *, dead_letters: bool = False, timeout_s: float = 30.0
) -> Iterator[Record]:
    """Retained records up to the end as it stands now, in order per partition.

    `dead_letters`: those of the topic's dead-letter topic instead.

    Raises `Unavailable` when the broker is away or the topic does not exist.
    """
    topic = topic_name(settings, spec.dlq_name if dead_letters else spec.name)
    consumer = Consumer(
        consumer_config(settings, group=f"{settings.topic_prefix}scan-{uuid.uuid4().hex}", client_id="scan")
        | {"enable.partition.eof": True}
    )
    try:
        starts = _retained(consumer, settings, topic)
        if starts:
            consumer.assign(starts)
            yield from _read_to_end(
                consumer, settings.topic_prefix, {tp.partition for tp in starts}, timeout_s
            )
    except KafkaException as exc:
        raise Unavailable(
            f"{topic} cannot be read on {settings.bootstrap}: {exc.args[0].str()}. "
            "Is the broker up (`agentworld status`), and AGENTWORLD_KAFKA_BOOTSTRAP right?"
        ) from exc
    finally:
        consumer.close()


def _retained(consumer: Consumer, settings: KafkaSettings, topic: str) -> list[TopicPartition]:
    # Asking for one topic by name makes some brokers create it.
    metadata: Any = consumer.list_topics(timeout=10).topics.get(topic)
    if metadata is None:
        raise Unavailable(
            f"{topic} does not exist on {settings.bootstrap}: has anything run against this broker yet, and "
            "is AGENTWORLD_KAFKA_TOPIC_PREFIX right?"
        )
    starts = []
    for partition in metadata.partitions:
        low, high = watermark_offsets(consumer, TopicPartition(topic, partition))
        if low < high:
            starts.append(TopicPartition(topic, partition, low))
    return starts


def _read_to_end(consumer: Consumer, prefix: str, unread: set[int], timeout_s: float) -> Iterator[Record]:
    heard = time.monotonic()
    while unread:
        for message in consumer.consume(500, 0.2):
            heard = time.monotonic()
            error = message.error()
            if error is None:
                yield to_record(message, prefix)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)
        if time.monotonic() - heard > timeout_s:
            raise Unavailable(f"no answer from the broker for {timeout_s:.0f} s")
