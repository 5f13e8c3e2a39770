"""The broker as the durable publisher sees it: submit, probe, and a word when it goes away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from agentworld.contract.events import Place
from agentworld.platform.kafka import admin_client
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.settings import KafkaSettings

_PROBE_S = 1.0


class Broker(Protocol):
    """Where records are acknowledged."""

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        """The future holds the record's place, or `Unavailable`, or `InvalidInput` for one refused for good.

        Either may also be raised at once.
        """
        ...

    async def probe(self) -> bool:
        """Whether the broker answers now."""
        ...

    def on_away(self, told: Callable[[], None]) -> None:
        """Call `told` in the event loop whenever contact to the broker is lost."""
        ...

    async def close(self) -> None:
        """Finish what is under way."""
        ...


class KafkaBroker:
    """A Kafka cluster. Needs a running event loop when created."""

    def __init__(self, settings: KafkaSettings, *, client_id: str, delivery_timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._told: list[Callable[[], None]] = []
        self._admin = admin_client(settings)
        self._publisher = KafkaPublisher(
            settings,
            client_id=client_id,
            delivery_timeout_ms=delivery_timeout_ms,
            options={"error_cb": self._failed},
        )

    def _failed(self, error: KafkaError) -> None:
        """In the publisher's thread."""
        if error.fatal() or error.code() == KafkaError._ALL_BROKERS_DOWN:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs to know
                self._loop.call_soon_threadsafe(self._tell)
        if error.fatal():
            raise KafkaException(error)  # how the publisher learns that its client is broken

    def _tell(self) -> None:
        for told in self._told:
            told()

    def on_away(self, told: Callable[[], None]) -> None:
        """Call `told` whenever all brokers are down or the client had to give up."""
        self._told.append(told)

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        """Hand over; see `KafkaPublisher.submit`."""
        return self._publisher.submit(record)

    async def probe(self) -> bool:
        """Ask for metadata."""
        try:
            await asyncio.to_thread(self._admin.list_topics, timeout=_PROBE_S)
        except KafkaException:
            return False
        return True

    async def close(self) -> None:
        """Wait for acknowledgements under way."""
        await self._publisher.close()
