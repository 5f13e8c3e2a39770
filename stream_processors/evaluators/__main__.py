"""`python -m stream_processors.evaluators`: evaluate sealed trajectories until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Any

import aiohttp
from pydantic import ValidationError

from agentworld.contract.errors import AgentWorldError, InvalidInput, Unavailable
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.broker_probe import BrokerProbe
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.logs import configure_logging
from agentworld.platform.nesting import follow_deep_nesting
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reader import KafkaReader
from agentworld.platform.settings import KafkaSettings
from stream_processors.evaluators.answers import SOURCE
from stream_processors.evaluators.budget import Budget
from stream_processors.evaluators.kinds import evaluator_name
from stream_processors.evaluators.ready import ReadyEvaluators
from stream_processors.evaluators.service import EvaluatorService
from stream_processors.evaluators.settings import EvaluatorSettings
from stream_processors.health import serve_health
from stream_processors.rule_book import RuleBook
from stream_processors.rules import Rules

logger = logging.getLogger("evaluators")

_PROBE_S = 2.0


class Status:
    """What `/health` says."""

    def __init__(self) -> None:
        self.service: EvaluatorService | None = None
        self.broker = "the broker was not asked yet"
        """Why it cannot be used; empty where it can."""

    def __call__(self) -> dict[str, Any]:
        """`ok` where trajectories can be evaluated."""
        reason = self.broker or ("starting" if self.service is None else self.service.trouble)
        return {
            "status": "unavailable" if reason else "ok",
            "service": "evaluators",
            "reason": reason or None,
            "open": self.service.open if self.service else 0,
        }

    async def watch(self, kafka: KafkaSettings) -> None:
        """Ask the broker from time to time, so that idle evaluators notice too that it is away."""
        probe = BrokerProbe(kafka)
        while True:
            try:
                await asyncio.to_thread(probe)
            except Unavailable as exc:
                self.broker = str(exc)
            else:
                self.broker = ""
            await asyncio.sleep(_PROBE_S)


async def serve(settings: EvaluatorSettings, kafka: KafkaSettings) -> None:
    """Run until told to stop. Raises `InvalidInput` for rules that cannot be followed."""
    book = _book(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    budget = Budget(settings.data_dir / f"spent-{settings.instance}.json")
    async with aiohttp.ClientSession() as session:
        ready = ReadyEvaluators(book.evaluators, session=session, budget=budget, environment=os.environ)
        status = Status()
        health = await serve_health(settings.health_host, settings.health_port, status)
        watching = asyncio.create_task(status.watch(kafka))
        try:
            await _prepare_topics(kafka, stop)
            if not stop.is_set():
                await _consume(settings, kafka, book, ready, stop, status)
        finally:
            watching.cancel()
            await health.cleanup()


def _book(settings: EvaluatorSettings) -> RuleBook:
    if settings.rules_file is None:
        raise InvalidInput(
            "no rules file: set AGENTWORLD_EVALUATORS_RULES_FILE to a file with [[default.evaluator]] or "
            "[[run.evaluator]] tables",
            code="no_rules",
        )
    book = RuleBook.read(settings.rules_file, Rules())
    if not book.evaluators:
        raise InvalidInput(
            f"the rules file {settings.rules_file} has no [[default.evaluator]] or [[run.evaluator]] table",
            code="no_evaluators",
        )
    return book


async def _prepare_topics(kafka: KafkaSettings, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await asyncio.to_thread(ensure_topics, kafka, timeout_s=5)
        except Unavailable as exc:
            logger.warning("waiting: %s", exc)
            await asyncio.sleep(1)
        else:
            return


async def _consume(
    settings: EvaluatorSettings,
    kafka: KafkaSettings,
    book: RuleBook,
    ready: ReadyEvaluators,
    stop: asyncio.Event,
    status: Status,
) -> None:
    client_id = f"evaluators-{settings.instance}"
    publisher = KafkaPublisher(kafka, client_id=client_id)
    reader = KafkaReader(
        kafka,
        [TRAJECTORIES],
        group=f"{kafka.topic_prefix}{SOURCE}",
        client_id=client_id,
        instance_id=client_id,
    )
    status.service = EvaluatorService(
        settings, rules=book, ready=ready, reader=reader, publisher=publisher, stop=stop
    )
    names = sorted({evaluator_name(evaluator) for evaluator in book.evaluators})
    logger.info("evaluators %s ask %s", settings.instance, ", ".join(names))
    try:
        await status.service.run()
    finally:
        await asyncio.to_thread(reader.close)
        await publisher.close()
    logger.info("evaluators %s stopped", settings.instance)


def main() -> int:
    """Exit code 0 after a stop that was asked for, 1 with one line where it cannot run."""
    configure_logging("evaluators")
    follow_deep_nesting()
    try:
        asyncio.run(serve(EvaluatorSettings(), KafkaSettings()))
    except (AgentWorldError, ValidationError, OSError) as exc:
        # The message says what to do; a trace would hide it.
        logger.error("cannot run: %s", exc)  # noqa: TRY400
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    # A plugin's thread may never end; nothing is left for it to do.
    os._exit(code)
