"""Kafka clients, configured once: murmur2, idempotent producers, manual commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from agentworld.contract.errors import Unavailable
from agentworld.contract.topics import ALL_TOPICS, TopicSpec
from agentworld.platform.settings import KafkaSettings

logger = logging.getLogger(__name__)

_MAX_FETCH_BYTES = 2_000_000_000
# Some brokers answer a fetch with more than was asked for; librdkafka's default limit refuses it.


_ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


def topic_name(settings: KafkaSettings, name: str) -> str:
    """The full name of a topic."""
    return settings.topic_prefix + name


def group_name(settings: KafkaSettings, service: str, purpose: str) -> str:
    """The full name of a consumer group: `<prefix><service>.<purpose>`."""
    return f"{settings.topic_prefix}{service}.{purpose}"


def client_config(settings: KafkaSettings, *, client_id: str) -> dict[str, Any]:
    """librdkafka options common to all clients."""
    config: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "client.id": client_id,
        "security.protocol": settings.security_protocol,
        "receive.message.max.bytes": _MAX_FETCH_BYTES,
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "log_level": 2,
    }
    if settings.security_protocol.startswith("SASL"):
        config["sasl.mechanism"] = settings.sasl_mechanism
        config["sasl.username"] = settings.sasl_username
        config["sasl.password"] = settings.sasl_password
    if settings.ssl_ca_location:
        config["ssl.ca.location"] = settings.ssl_ca_location
    return config | settings.client_options


def producer_config(settings: KafkaSettings, *, client_id: str) -> dict[str, Any]:
    """acks=all, idempotent, zstd, murmur2."""
    return client_config(settings, client_id=client_id) | {
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "zstd",
        "linger.ms": 2,
        "message.max.bytes": max(spec.max_message_bytes for spec in ALL_TOPICS),
        "queue.buffering.max.kbytes": 256 * 1024,
    }


def consumer_config(
    settings: KafkaSettings,
    *,
    group: str,
    client_id: str,
    instance_id: str | None = None,
    offset_reset: str = "earliest",
) -> dict[str, Any]:
    """Manual commits, range assignor, classic protocol. `instance_id` makes membership static."""
    config = client_config(settings, client_id=client_id) | {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": offset_reset,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 2_000,
        "max.poll.interval.ms": 300_000,
        "fetch.wait.max.ms": 100,
        "isolation.level": "read_committed",
    }
    if instance_id:
        config["group.instance.id"] = instance_id
    return config


def admin_client(settings: KafkaSettings) -> AdminClient:
    """A client for topic administration."""
    return AdminClient(client_config(settings, client_id="agentworld-admin"))


def _topic_config(settings: KafkaSettings, spec: TopicSpec) -> dict[str, str]:
    return {
        "cleanup.policy": spec.cleanup,
        "retention.ms": str(int(spec.retention.total_seconds() * 1000)),
        "max.message.bytes": str(spec.max_message_bytes),
    } | settings.topic_config


def ensure_topics(
    settings: KafkaSettings, specs: Iterable[TopicSpec] = ALL_TOPICS, *, timeout_s: float = 30.0
) -> None:
    """Create the topics that do not exist, and their dead-letter topics.

    Raises `Unavailable` when the broker does not answer in time.
    """
    wanted: dict[str, NewTopic] = {}
    for spec in specs:
        partitions = settings.partitions or spec.partitions
        config = _topic_config(settings, spec)
        names = [spec.name] + ([spec.dlq_name] if spec.dead_letters else [])
        for name in names:
            full = topic_name(settings, name)
            if name != spec.name:
                config = config | {"cleanup.policy": "delete"}
            wanted[full] = NewTopic(
                full,
                num_partitions=partitions,
                replication_factor=settings.replication_factor,
                config=config,
            )
    admin = admin_client(settings)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            existing = admin.list_topics(timeout=5).topics
            missing = [topic for name, topic in wanted.items() if name not in existing]
            if not missing:
                return
            for future in admin.create_topics(missing, request_timeout=10).values():
                try:
                    future.result(timeout=15)
                except KafkaException as exc:
                    if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"topics could not be created on {settings.bootstrap}: {error.str()}. "
                    "Check AGENTWORLD_KAFKA_BOOTSTRAP, the broker, and the right to create topics."
                ) from exc
            time.sleep(0.2)


def watermark_offsets(
    consumer: Consumer, partition: TopicPartition, *, timeout_s: float = 10.0
) -> tuple[int, int]:
    """Offset of the first retained record, and the one after the last. Raises `KafkaException`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            left_s = max(0.1, deadline - time.monotonic())
            low, high = consumer.get_watermark_offsets(partition, timeout=left_s)
        except KafkaException as exc:
            # A topic made a moment ago has no leader yet.
            if exc.args[0].code() not in _ELECTING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return low, high
