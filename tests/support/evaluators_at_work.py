"""The evaluators' service over some log, in this process."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from agentworld.platform.log import PlacedReader, Publisher
from stream_processors.evaluators.budget import Budget
from stream_processors.evaluators.ready import ReadyEvaluators
from stream_processors.evaluators.service import EvaluatorService
from stream_processors.evaluators.settings import EvaluatorSettings
from stream_processors.rule_book import RuleBook
from stream_processors.rules import Rules

PATIENCE_S = 60.0


@asynccontextmanager
async def evaluating(
    rules: str,
    reader: PlacedReader,
    publisher: Publisher,
    *,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[EvaluatorService]:
    """A running service, stopped in order at the end; what ended it is raised."""
    book = RuleBook.parse(rules, Rules())
    stop = asyncio.Event()
    with tempfile.TemporaryDirectory() as directory:
        async with aiohttp.ClientSession() as session:
            ready = ReadyEvaluators(
                book.evaluators,
                session=session,
                budget=Budget(Path(directory) / "spent.json"),
                environment=environment or {},
            )
            service = EvaluatorService(
                EvaluatorSettings.model_validate(settings),
                rules=book,
                ready=ready,
                reader=reader,
                publisher=publisher,
                stop=stop,
            )
            running = asyncio.create_task(service.run())
            try:
                yield service
            finally:
                stop.set()
                await running


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until true; fails after a long while."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        await asyncio.sleep(0.01)
