"""`python -m stream_processors`: run one worker until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Any

from pydantic import ValidationError

from agentworld.contract.errors import AgentWorldError
from agentworld.platform.logs import configure_logging
from agentworld.platform.nesting import follow_deep_nesting
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.settings import KafkaSettings
from stream_processors.health import serve_health
from stream_processors.settings import ProcessorSettings, rules_of
from stream_processors.stall import watch_stall
from stream_processors.topics import APP_NAME, prepare_topics
from stream_processors.worker import Worker

logger = logging.getLogger(__name__)


async def run(settings: ProcessorSettings, kafka: KafkaSettings) -> int:
    """Work until told to stop (0) or until something must not go on (1)."""
    rules = rules_of(settings, kafka)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    worker: Worker | None = None

    def status() -> dict[str, Any]:
        if worker is None:
            return {"status": "waiting", "reason": f"the broker at {kafka.bootstrap} is away or not ready"}
        if worker.failed.done():
            return {"status": "failed", "reason": str(worker.failed.result())}
        state = "ok" if worker.ready else "recovering"
        return {
            "status": state,
            "reason": "" if worker.ready else "partitions are being assigned or their state recovered",
            "partitions": {stage.name: sorted(stage.partitions) for stage in worker.stages},
            "open": {stage.name: sum(stage.open_counts().values()) for stage in worker.stages},
            "processed": {stage.name: stage.processed for stage in worker.stages},
        }

    health = await serve_health(settings.health_host, settings.health_port, status)
    stop_wanted = asyncio.create_task(stopping.wait())
    try:
        preparing = asyncio.create_task(prepare_topics(kafka))
        either: set[asyncio.Future[Any]] = {preparing, stop_wanted}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            preparing.cancel()
            return 0
        publisher = KafkaPublisher(
            kafka,
            client_id=f"{APP_NAME}-{settings.instance}",
            delivery_timeout_ms=settings.delivery_timeout_ms,
        )
        worker = Worker(settings, kafka, partitions=preparing.result(), rules=rules, submitter=publisher)
        starting = asyncio.create_task(worker.start())
        watching = asyncio.create_task(watch_stall(worker, kafka, settings.stall_timeout_ms))
        ends: set[asyncio.Future[Any]] = {worker.failed, stop_wanted}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        failed = worker.failed.done()
        watching.cancel()
        starting.cancel()
        await worker.stop()
        if not failed:
            await publisher.close()
        return 1 if failed else 0
    finally:
        stop_wanted.cancel()
        await health.cleanup()


def main() -> None:
    """Read the settings and run."""
    configure_logging(APP_NAME)
    follow_deep_nesting()
    for noisy in ("faust", "mode", "aiokafka"):
        logging.getLogger(noisy).setLevel(os.environ.get("AGENTWORLD_FAUST_LOG_LEVEL", "ERROR"))
    code = 1
    try:
        code = asyncio.run(run(ProcessorSettings(), KafkaSettings()))
    except (AgentWorldError, ValidationError, OSError) as exc:
        # OSError: the health port is taken.
        logger.critical("cannot run: %s", exc)
    logger.info("stopped")
    logging.shutdown()
    sys.stderr.flush()
    # Faust's consumer thread can outlive its loop; nothing is left for it to do.
    os._exit(code)


if __name__ == "__main__":
    main()
