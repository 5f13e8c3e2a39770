"""Readers over Kafka: a consumer group's reader, and one for single records by place."""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Place
from agentworld.contract.topics import TopicSpec
from agentworld.platform.idle_fetch import IdleFetch
from agentworld.platform.kafka import client_config, consumer_config, topic_name, watermark_offsets
from agentworld.platform.log import Record
from agentworld.platform.settings import KafkaSettings

logger = logging.getLogger(__name__)


def to_record(message: Message, prefix: str) -> Record:
    """A librdkafka message as a `Record`."""
    raw = message.headers() or []
    pairs = raw.items() if isinstance(raw, dict) else raw
    return Record(
        topic=(message.topic() or "").removeprefix(prefix),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value) or b"") for name, value in pairs),
        timestamp_ms=message.timestamp()[1],
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class KafkaReader:
    """Reads `specs` in `group`. Commits only what `commit` covers."""

    def __init__(
        self,
        settings: KafkaSettings,
        specs: Sequence[TopicSpec],
        *,
        group: str,
        client_id: str,
        instance_id: str | None = None,
        offset_reset: str = "earliest",
    ) -> None:
        self._prefix = settings.topic_prefix
        self._from_end = offset_reset == "latest"
        self._consumer = Consumer(
            consumer_config(
                settings,
                group=group,
                client_id=client_id,
                instance_id=instance_id,
                offset_reset=offset_reset,
            )
        )
        self._fetch = IdleFetch(
            self._consumer,
            client_config(settings, client_id=client_id),
            idle_fetch_ms=settings.idle_fetch_ms,
        )
        self._next: dict[tuple[str, int], int] = {}
        self._mine: set[tuple[str, int]] = set()
        self._consumer.subscribe(
            [topic_name(settings, spec.name) for spec in specs],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
        )

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._mine |= {(tp.topic, tp.partition) for tp in partitions}
        self._fetch.assigned(partitions, from_end=self._from_end)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._next.pop((tp.topic, tp.partition), None)
            self._mine.discard((tp.topic, tp.partition))

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """Up to `max_records`, in order per partition; empty after `timeout_s`.

        Returns what is there as soon as there is something. Raises `Unavailable` when this
        consumer cannot go on, e.g. another with the same `instance_id` took its place.
        """
        try:
            messages = self._fetch.consume(max_records, timeout_s)
        except KafkaException as exc:
            raise Unavailable(f"consumer failed: {exc.args[0].str()}") from exc
        records = []
        for message in messages:
            if error := message.error():
                # As an event it has this code, and does not call itself fatal.
                if error.fatal() or error.code() == KafkaError._FATAL:
                    raise Unavailable(f"consumer failed: {error.str()}")
                logger.warning("consumer: %s", error.str())
                continue
            records.append(to_record(message, self._prefix))
            self._next[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
        return records

    def commit(self) -> None:
        """Commit the position after everything polled so far."""
        if not self._next:
            return
        self._commit([TopicPartition(t, p, o) for (t, p), o in self._next.items()])
        self._next.clear()

    def commit_to(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Commit these positions, by topic (without prefix) and partition, of the partitions still had."""
        full = {(self._prefix + topic, partition): at for (topic, partition), at in positions.items()}
        if offsets := [TopicPartition(t, p, at) for (t, p), at in full.items() if (t, p) in self._mine]:
            self._commit(offsets)

    def _commit(self, offsets: list[TopicPartition]) -> None:
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            raise Unavailable(f"offsets not committed: {error.str()}") from exc
        for tp in committed or []:
            if tp.error:
                raise Unavailable(f"{tp.topic}/{tp.partition}: offset not committed: {tp.error.str()}")

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class KafkaPlaceReader:
    """Fetches single records by partition and offset, sequentially per partition."""

    def __init__(self, settings: KafkaSettings, spec: TopicSpec, *, client_id: str) -> None:
        self._settings = settings
        self._topic = topic_name(settings, spec.name)
        self._consumer = Consumer(
            consumer_config(settings, group=f"{client_id}-{uuid.uuid4().hex}", client_id=client_id)
            | {"auto.offset.reset": "error"}
        )

    def fetch(self, places: Sequence[Place], *, timeout_s: float = 30.0) -> dict[tuple[int, int], Record]:
        """Records by (partition, offset); those outside the retained range are absent."""
        deadline = time.monotonic() + timeout_s
        wanted: dict[int, list[int]] = defaultdict(list)
        for place in places:
            wanted[place.partition].append(place.offset)
        found: dict[tuple[int, int], Record] = {}
        for partition, offsets in sorted(wanted.items()):
            low, high = self._range(partition, deadline)
            retained = sorted({o for o in offsets if low <= o < high})
            for record in self._read(partition, retained, deadline):
                found[partition, record.offset] = record
        return found

    def _range(self, partition: int, deadline: float) -> tuple[int, int]:
        try:
            return watermark_offsets(
                self._consumer,
                TopicPartition(self._topic, partition),
                timeout_s=max(0.1, deadline - time.monotonic()),
            )
        except KafkaException as exc:
            raise Unavailable(f"{self._topic}/{partition}: {exc.args[0].str()}") from exc

    def _read(self, partition: int, offsets: list[int], deadline: float) -> list[Record]:
        records = []
        position: int | None = None
        for offset in offsets:
            if position is None or not position <= offset <= position + 64:
                self._consumer.assign([TopicPartition(self._topic, partition, offset)])
            position = None
            trouble = "no answer in time"
            while position is None:
                if time.monotonic() > deadline:
                    raise Unavailable(f"{self._topic}/{partition}@{offset}: {trouble}")
                message = self._consumer.poll(0.2)
                if message is None:
                    continue
                if error := message.error():
                    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # expired meanwhile
                        break
                    trouble = error.str()
                    continue
                if (message.offset() or 0) < offset:
                    continue
                position = (message.offset() or 0) + 1
                if message.offset() == offset:
                    records.append(to_record(message, self._settings.topic_prefix))
        self._consumer.unassign()
        return records

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()
