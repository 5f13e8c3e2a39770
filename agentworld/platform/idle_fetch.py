"""Fewer fetches while a topic has nothing new, for brokers that answer an empty fetch at once.

Apache Kafka holds a fetch open until there is data. A broker that does not makes librdkafka ask
thousands of times a second. So after a quiet second the partitions are paused, and the ends of all
of them are looked up every `idle_fetch_ms` instead, with one request, until one has grown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from agentworld.platform.kafka import watermark_offsets

_QUIET_S = 1.0


class IdleFetch:
    """Polls one consumer; `idle_fetch_ms` 0 leaves fetching to the broker."""

    def __init__(self, consumer: Consumer, client_config: Mapping[str, Any], *, idle_fetch_ms: int) -> None:
        self._consumer = consumer
        self._idle_s = idle_fetch_ms / 1000
        self._admin = AdminClient(dict(client_config)) if idle_fetch_ms else None
        self._positions: dict[tuple[str, int], int] = {}
        self._paused = False
        self._quiet_since = time.monotonic()
        self._next_look = 0.0

    def assigned(self, partitions: list[TopicPartition], *, from_end: bool) -> None:
        """Take note of where each newly assigned partition is read from; call it on assignment."""
        self._positions.clear()
        self._paused = False
        if self._admin is None:
            return
        for tp in self._consumer.committed(partitions, timeout=10):
            if tp.offset < 0:
                low, high = watermark_offsets(self._consumer, tp)
                tp.offset = high if from_end else low
            self._positions[tp.topic, tp.partition] = tp.offset
        self._consumer.assign(self._at_positions())

    def consume(self, max_messages: int, timeout_s: float) -> list[Message]:
        """What is there as soon as there is something, empty after `timeout_s`.

        The first record after a pause waits `idle_fetch_ms` at most.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            if self._paused and now >= self._next_look:
                self._next_look = now + self._idle_s
                if self._has_news():
                    self._resume()
            patience = max(0.0, min(deadline, self._next_look if self._paused else deadline) - now)
            if messages := self._consumer.consume(1, patience):
                if max_messages > 1:
                    messages += self._consumer.consume(max_messages - 1, 0)
                self._take_note(messages)
                return messages
            now = time.monotonic()
            if not self._paused and self._admin is not None and now - self._quiet_since >= _QUIET_S:
                self._pause(now)
            if now >= deadline:
                return []

    def _take_note(self, messages: list[Message]) -> None:
        self._quiet_since = time.monotonic()
        for message in messages if self._admin is not None else ():
            if not message.error():
                at = message.topic() or "", message.partition() or 0
                self._positions[at] = (message.offset() or 0) + 1

    def _has_news(self) -> bool:
        assert self._admin is not None
        looked_up = self._admin.list_offsets(
            {
                TopicPartition(*at): OffsetSpec.latest()  # type: ignore[no-untyped-call]
                for at in self._positions
            },
            request_timeout=5,
        )
        try:
            ends = {(tp.topic, tp.partition): end.result().offset for tp, end in looked_up.items()}
        except KafkaException:
            # The consumer meets the same trouble and knows what to do.
            return True
        # An end that lies before the position is news too: the log returned to an earlier state.
        return any(ends[at] != position for at, position in self._positions.items())

    def _pause(self, now: float) -> None:
        if self._positions:
            self._consumer.pause(self._at_positions())
            self._paused = True
            self._next_look = now + self._idle_s

    def _resume(self) -> None:
        self._paused = False
        self._quiet_since = time.monotonic()
        partitions = self._at_positions()
        self._consumer.resume(partitions)
        # A resumed partition fetches after half a second, one that is sought at once.
        for tp in partitions:
            try:
                self._consumer.seek(tp)
            except KafkaException:
                # Taken away meanwhile; the next assignment brings its own position.
                self._positions.pop((tp.topic, tp.partition), None)

    def _at_positions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, partition, at) for (topic, partition), at in self._positions.items()]
