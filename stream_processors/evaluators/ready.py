"""Evaluators made from their tables, with all that can be wrong with them said at the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import aiohttp
import msgspec

from stream_processors.evaluators.budget import Budget
from stream_processors.evaluators.evaluation import Evaluates
from stream_processors.evaluators.exact_match import ExactMatchEvaluator
from stream_processors.evaluators.judge.endpoint import ChatEndpoint
from stream_processors.evaluators.judge.judging import JudgeEvaluator
from stream_processors.evaluators.kinds import AnyEvaluator, Judge, Plugin, evaluator_name
from stream_processors.evaluators.plugin import PluginEvaluator, load_function
from stream_processors.evaluators.secret import read_secret


class ReadyEvaluators:
    """One for each table. Equal tables of several runs share theirs, and its limits."""

    def __init__(
        self,
        tables: Iterable[AnyEvaluator],
        *,
        session: aiohttp.ClientSession,
        budget: Budget,
        environment: Mapping[str, str],
    ) -> None:
        """Raises `InvalidInput` for a missing API key or a function that cannot be imported."""
        self._ready: dict[bytes, Evaluates] = {}
        for table in tables:
            self._ready[_identity(table)] = _made(table, session, budget, environment)

    def of(self, table: AnyEvaluator) -> Evaluates:
        """The evaluator of that table."""
        return self._ready[_identity(table)]


def _identity(table: AnyEvaluator) -> bytes:
    return msgspec.json.encode(table)


def _made(
    table: AnyEvaluator, session: aiohttp.ClientSession, budget: Budget, environment: Mapping[str, str]
) -> Evaluates:
    if isinstance(table, Judge):
        secret = read_secret(table.api_key_env, environment, whose=evaluator_name(table))
        return JudgeEvaluator(table, ChatEndpoint(table, session, secret), budget)
    if isinstance(table, Plugin):
        return PluginEvaluator(table, load_function(table.function))
    return ExactMatchEvaluator(table)
