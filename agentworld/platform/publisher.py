"""A publisher straight to Kafka: returns when the broker has acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.platform.kafka import producer_config, topic_name
from agentworld.platform.log import OutRecord
from agentworld.platform.settings import KafkaSettings

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 10.0
_MAX_TRIES = 5


@dataclass(slots=True)
class _Pending:
    record: OutRecord
    future: asyncio.Future[Place]
    loop: asyncio.AbstractEventLoop
    tries: int = 0

    def settle(self, result: Place | Exception) -> None:
        """From any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: Place | Exception) -> None:
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class KafkaPublisher:
    """Awaits the broker's acknowledgement of each record (acks=all, idempotent).

    A broker that lost its last moments (a crash of the embedded one) breaks an idempotent producer
    for good. It is replaced then, and what it had not delivered is sent again by the new one. Only what
    the broker has given an offset counts as acknowledged.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str,
        delivery_timeout_ms: int = 30_000,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._config = (
            producer_config(settings, client_id=client_id)
            | {"message.timeout.ms": delivery_timeout_ms}
            | (options or {})
        )
        self._broken = threading.Event()
        self._again: deque[_Pending] = deque()
        self._closing = threading.Event()
        self._producer = Producer(self._config)
        self._poller = threading.Thread(target=self._poll, name="kafka-acks", daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(0.1)
            except KafkaException as exc:  # librdkafka's client raises fatal errors here
                logger.warning("the producer is replaced: %s", exc.args[0].str())
                self._broken.set()
                self._replace()
            for _ in range(len(self._again)):
                self._resend(self._again.popleft())

    def _replace(self) -> None:
        broken, self._producer = self._producer, Producer(self._config)
        self._broken.clear()
        while len(broken):
            broken.purge()
            with contextlib.suppress(KafkaException):
                broken.flush(1)

    def _resend(self, pending: _Pending) -> None:
        try:
            self._produce(pending)
        except (Unavailable, InvalidInput) as exc:
            pending.settle(exc)

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        """Hand the record over; the future holds its place once acknowledged.

        Raises `Unavailable` when the send queue is full, `InvalidInput` when it is too large.
        """
        loop = asyncio.get_running_loop()
        pending = _Pending(record, loop.create_future(), loop)
        self._produce(pending)
        return pending.future

    def _produce(self, pending: _Pending) -> None:
        record = pending.record
        producer = self._producer
        pending.tries += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                pending.settle(Place(topic=record.topic, partition=message.partition() or 0, offset=offset))
            elif error is None:
                self._not_placed(pending)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                pending.settle(_refused(record, error))
            elif self._is_broken(producer) and pending.tries < _MAX_TRIES:
                self._again.append(pending)
            else:
                pending.settle(Unavailable(f"{record.topic}: not acknowledged: {error.str()}"))

        extra: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        try:
            producer.produce(
                topic_name(self._settings, record.topic),
                key=record.key,
                value=None if record.tombstone else record.value,
                headers=list(record.headers),
                on_delivery=delivered,
                **extra,
            )
        except BufferError as exc:
            raise Unavailable(f"{record.topic}: the send queue is full") from exc
        except KafkaException as exc:
            if self._is_broken(producer) and pending.tries < _MAX_TRIES:
                self._again.append(pending)
            else:
                raise _refused(record, exc.args[0]) from exc

    def _not_placed(self, pending: _Pending) -> None:
        """librdkafka calls the record acknowledged, and no offset came for it: send it again.

        It concludes so from the acknowledgement of a later batch. That is wrong where the broker refused
        the earlier one because it did not lead the partition yet (a topic made just now, a broker that
        starts) and led it a moment later: a producer it does not know may begin with any batch, so it takes
        the later one, and the earlier record is nowhere.
        """
        if pending.tries < _MAX_TRIES:
            self._again.append(pending)
        else:
            pending.settle(Unavailable(f"{pending.record.topic}: acknowledged without a place"))

    def _is_broken(self, producer: Producer) -> bool:
        return producer is not self._producer or self._broken.is_set()

    async def publish(self, record: OutRecord) -> Place | None:
        """Return the record's place once the broker has acknowledged it."""
        return await self.submit(record)

    async def close(self) -> None:
        """Wait for acknowledgements under way (up to 10 s); what has none by then is `Unavailable`."""
        await asyncio.to_thread(self._producer.flush, _CLOSE_TIMEOUT_S)
        self._closing.set()
        await asyncio.to_thread(self._poller.join)
        if len(self._producer):
            self._producer.purge()
            await asyncio.to_thread(self._producer.flush, 1)
        while self._again:
            pending = self._again.popleft()
            pending.settle(Unavailable(f"{pending.record.topic}: the publisher was closed"))


def _refused(record: OutRecord, error: KafkaError) -> InvalidInput:
    return InvalidInput(
        f"{record.topic}: {len(record.value)} bytes were refused: {error.str()}. "
        "Send less, or raise the topic's max.message.bytes",
        code="record_refused",
        status=413,
    )
