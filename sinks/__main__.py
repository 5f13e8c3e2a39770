"""`python -m sinks`: waits for the broker and ClickHouse, migrates, then runs until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

from agentworld.contract.errors import AgentWorldError, Retryable
from agentworld.platform.broker_probe import BrokerProbe
from agentworld.platform.clickhouse import connect
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.logs import configure_logging
from agentworld.platform.nesting import follow_deep_nesting
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reader import KafkaReader
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from sinks.health import Health, HealthServer
from sinks.rows.build import SOURCES
from sinks.schema import migrate
from sinks.settings import SinkSettings
from sinks.sink import CONSUMER, Sink, pause
from sinks.writer import ClickHouseWriter

logger = logging.getLogger("sinks")


async def serve(settings: SinkSettings, kafka: KafkaSettings, clickhouse: ClickHouseSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises `ContractViolation` where the schema is not ours."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    writer = ClickHouseWriter(lambda: connect(clickhouse))
    health = Health({"broker": BrokerProbe(kafka), "clickhouse": writer.ping})
    health.trouble("sink", "starting")
    server = HealthServer(health, host=settings.health_host, port=settings.health_port)
    logger.info("health and metrics on http://%s:%d", settings.health_host, server.port)
    try:
        await _until_done("broker", lambda: ensure_topics(kafka, timeout_s=5), health, stop)
        await _until_done("clickhouse", lambda: migrate(clickhouse), health, stop)
        if not stop.is_set():
            await _consume(settings, kafka, writer, health, stop)
    finally:
        server.close()
        writer.close()


async def _consume(
    settings: SinkSettings,
    kafka: KafkaSettings,
    writer: ClickHouseWriter,
    health: Health,
    stop: asyncio.Event,
) -> None:
    client_id = f"sink-{settings.instance}"
    publisher = KafkaPublisher(kafka, client_id=client_id)
    reader = KafkaReader(
        kafka,
        SOURCES,
        group=f"{kafka.topic_prefix}{CONSUMER}",
        client_id=client_id,
        instance_id=client_id,
    )
    health.well("sink")
    logger.info("sink %s reads %s", settings.instance, ", ".join(spec.name for spec in SOURCES))
    try:
        await Sink(
            settings, reader=reader, writer=writer, publisher=publisher, health=health, stop=stop
        ).run()
    finally:
        await asyncio.to_thread(reader.close)
        await publisher.close()
    logger.info("sink %s stopped", settings.instance)


async def _until_done(
    component: str, attempt: Callable[[], object], health: Health, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        try:
            await asyncio.to_thread(attempt)
        except Retryable as exc:
            health.trouble(component, str(exc))
            logger.warning("waiting: %s", exc)
            await pause(stop, 1000)
        else:
            health.well(component)
            return


def main() -> int:
    """Exit code 0 after a stop that was asked for, 1 with one line where it cannot run."""
    configure_logging("sink")
    follow_deep_nesting()
    try:
        asyncio.run(serve(SinkSettings(), KafkaSettings(), ClickHouseSettings()))
    except (AgentWorldError, OSError) as exc:
        # The message says what to do; a trace would hide it.
        logger.error("%s", exc)  # noqa: TRY400
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
