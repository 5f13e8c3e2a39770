"""Faust's Kafka transport, with a pause between fetches that come back empty at once."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import Any

from aiokafka.protocol.fetch import FetchRequest
from faust.auth import SASLCredentials, SSLCredentials
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Transport
from faust.types.auth import AuthProtocol

from agentworld.platform.settings import KafkaSettings
from stream_processors.delivery import ContiguousConsumer

_LONG_POLL_S = 0.2
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.05


class _PacedConsumerThread(AIOKafkaConsumerThread):
    """Against a broker that answers an empty fetch without waiting, as the embedded one does."""

    logger = logging.getLogger("faust.consumer")

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        client = consumer._client
        send = client.send
        pause_s = _FIRST_PAUSE_S

        async def paced_send(node_id: Any, request: Any, **options: Any) -> Any:
            nonlocal pause_s
            started = time.monotonic()
            response = await send(node_id, request, **options)
            if isinstance(request, FetchRequest):
                if _has_records(response):
                    pause_s = _FIRST_PAUSE_S
                elif time.monotonic() - started < _LONG_POLL_S:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            return response

        client.send = paced_send
        return consumer


class _PacedConsumer(ContiguousConsumer):
    logger = logging.getLogger("faust.consumer")

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _PacedConsumerThread(self, loop=self.loop, beacon=self.beacon)


class PacedTransport(Transport):
    """The transport to give to the app."""

    Consumer = _PacedConsumer


def _has_records(response: Any) -> bool:
    """True where any partition's record set (the last field) is not empty."""
    return any(fields[-1] for _, partitions in response.topics for fields in partitions)


def credentials_of(kafka: KafkaSettings) -> SASLCredentials | SSLCredentials | None:
    """How Faust authenticates, by the settings that librdkafka clients use as well."""
    protocol = kafka.security_protocol
    context = None
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=kafka.ssl_ca_location or None)
    if protocol.startswith("SASL"):
        credentials = SASLCredentials(
            username=kafka.sasl_username,
            password=kafka.sasl_password,
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
        credentials.protocol = AuthProtocol(protocol)
        return credentials
    return SSLCredentials(context=context) if context is not None else None
