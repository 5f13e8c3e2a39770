"""The broker as the durable publisher sees it: submit, probe, and a word when it goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.platform.kafka import admin_client
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.settings import KafkaSettings

logger = logging.getLogger(__name__)

_PROBE_S = 1.0


class Broker(Protocol):
    """Where records are acknowledged."""

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        """The future holds the record's place, or `Unavailable`, which may also be raised at once."""
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
        self._settings = settings
        self._client_id = client_id
        self._delivery_timeout_ms = delivery_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._told: list[Callable[[], None]] = []
        self._broken = False
        self._closing: set[asyncio.Task[None]] = set()
        self._admin = admin_client(settings)
        self._publisher = self._connect()

    def _connect(self) -> KafkaPublisher:
        def failed(error: KafkaError) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._failed, error)

        options: dict[str, Any] = {"error_cb": failed}
        return KafkaPublisher(
            self._settings,
            client_id=self._client_id,
            delivery_timeout_ms=self._delivery_timeout_ms,
            options=options,
        )

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            logger.error("broker client failed for good and will be replaced: %s", error.str())
            self._broken = True
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            return
        for told in self._told:
            told()

    def on_away(self, told: Callable[[], None]) -> None:
        """Call `told` whenever all brokers are down or the client had to give up."""
        self._told.append(told)

    def submit(self, record: OutRecord) -> asyncio.Future[Place]:
        """Hand over; see `KafkaPublisher.submit`."""
        if self._broken:
            raise Unavailable("the broker client is being replaced")
        try:
            return self._publisher.submit(record)
        except InvalidInput as exc:
            # Sizes are checked before, so it is the client that is unusable, not the record.
            self._broken = True
            raise Unavailable(str(exc)) from exc

    async def probe(self) -> bool:
        """Ask for metadata; replace the client if it failed for good."""
        try:
            await asyncio.to_thread(self._admin.list_topics, timeout=_PROBE_S)
        except KafkaException:
            return False
        if self._broken:
            self._retire(self._publisher)
            self._publisher = self._connect()
            self._broken = False
        return True

    def _retire(self, publisher: KafkaPublisher) -> None:
        task = asyncio.create_task(publisher.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Wait for acknowledgements under way."""
        await asyncio.gather(self._publisher.close(), *self._closing)
