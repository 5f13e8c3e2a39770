"""Fewer fetches while a topic has nothing new, for brokers that answer an empty fetch at once.

Apache Kafka holds a fetch open until there is data. A broker that does not makes librdkafka ask
thousands of times a second. So after an empty poll the partitions are paused for `idle_fetch_ms`,
then given a short window to deliver.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

_WINDOW_S = 0.03
# Long enough for a fetch to be sent and answered on loopback.


class IdleFetch:
    """Polls one consumer; `idle_fetch_ms` 0 leaves fetching to the broker."""

    def __init__(self, consumer: Consumer, *, idle_fetch_ms: int) -> None:
        self._consumer = consumer
        self._idle_s = idle_fetch_ms / 1000
        self._positions: dict[tuple[str, int], int] = {}
        self._resume_at: float | None = None
        self._quiet = False

    def assigned(self, partitions: list[TopicPartition], *, from_end: bool) -> None:
        """Take note of where each newly assigned partition is read from; call it on assignment."""
        self._positions.clear()
        self._resume_at = None
        if not self._idle_s:
            return
        for tp in self._consumer.committed(partitions, timeout=10):
            if tp.offset < 0:
                low, high = self._consumer.get_watermark_offsets(tp, timeout=10)
                tp.offset = high if from_end else low
            self._positions[tp.topic, tp.partition] = tp.offset
        self._consumer.assign(self._at_positions())

    def consume(self, max_messages: int, timeout_s: float) -> list[Message]:
        """What is there as soon as there is something, empty after `timeout_s`.

        A record that comes while paused waits `idle_fetch_ms` at most.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            messages = self._consumer.consume(1, self._patience(deadline))
            if messages:
                if max_messages > 1:
                    messages += self._consumer.consume(max_messages - 1, 0)
                self._quiet = False
                self._take_note(messages)
                return messages
            if not self._idle_s:
                return []
            if self._resume_at is None:
                self._pause()
            elif time.monotonic() >= self._resume_at:
                self._resume()
            if time.monotonic() >= deadline:
                return []

    def _take_note(self, messages: list[Message]) -> None:
        for message in messages if self._idle_s else ():
            if not message.error():
                at = message.topic() or "", message.partition() or 0
                self._positions[at] = (message.offset() or 0) + 1

    def _patience(self, deadline: float) -> float:
        left = max(0.0, deadline - time.monotonic())
        if self._resume_at is not None:
            return min(left, max(0.0, self._resume_at - time.monotonic()))
        return min(left, _WINDOW_S) if self._quiet else left

    def _pause(self) -> None:
        if self._positions:
            self._consumer.pause(self._at_positions())
            self._resume_at = time.monotonic() + self._idle_s

    def _resume(self) -> None:
        self._resume_at = None
        self._quiet = True
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
