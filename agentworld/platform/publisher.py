"""A publisher straight to Kafka: returns when the broker has acknowledged."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.platform.kafka import producer_config, topic_name
from agentworld.platform.log import OutRecord
from agentworld.platform.settings import KafkaSettings


class KafkaPublisher:
    """Awaits the broker's acknowledgement of each record (acks=all, idempotent)."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str,
        delivery_timeout_ms: int = 30_000,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._producer = Producer(
            producer_config(settings, client_id=client_id)
            | {"message.timeout.ms": delivery_timeout_ms}
            | (options or {})
        )
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="kafka-acks", daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.1)

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        """Hand the record over; the future holds its place once acknowledged.

        Raises `Unavailable` when the send queue is full, `InvalidInput` when it is too large.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Place] = loop.create_future()

        def settle(result: Place | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def delivered(error: Any, message: Message) -> None:
            result: Place | Exception
            if error is not None:
                result = Unavailable(f"{record.topic}: not acknowledged: {error.str()}")
            else:
                result = Place(
                    topic=record.topic,
                    partition=message.partition() or 0,
                    offset=message.offset() or 0,
                )
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        extra: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        try:
            self._producer.produce(
                topic_name(self._settings, record.topic),
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=delivered,
                **extra,
            )
        except BufferError as exc:
            raise Unavailable(f"{record.topic}: the send queue is full") from exc
        except KafkaException as exc:
            raise InvalidInput(
                f"{record.topic}: the broker client refused the record: {exc.args[0].str()}",
                code="record_refused",
                status=413,
            ) from exc
        return future

    async def publish(self, record: OutRecord) -> Place | None:
        """Return the record's place once the broker has acknowledged it."""
        return await self.submit(record)

    async def close(self) -> None:
        """Wait for acknowledgements under way (up to 10 s), then stop."""
        await asyncio.to_thread(self._producer.flush, 10)
        self._closing.set()
        await asyncio.to_thread(self._poller.join, 2)
