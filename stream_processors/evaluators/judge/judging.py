"""A judge asked about a trajectory: filled rubric, tries with pauses, a checked score."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from collections.abc import Callable
from typing import Any, Protocol

from agentworld.contract.errors import Unavailable
from agentworld.contract.events import TrajectorySealed
from agentworld.platform.metrics import counter
from stream_processors.evaluators.budget import Budget
from stream_processors.evaluators.conversation import at_path, last_answer, shortened, transcript
from stream_processors.evaluators.evaluation import Evaluation, EvaluationFailed
from stream_processors.evaluators.judge.answer import JudgeAnswer, UnusableAnswer, instruction, read_answer
from stream_processors.evaluators.judge.endpoint import Reply
from stream_processors.evaluators.kinds import Judge, evaluator_name, reward_name
from stream_processors.evaluators.template import filled, places

logger = logging.getLogger(__name__)

_MAX_PAUSE_S = 30.0
_EMPTY = "(empty)"


class Endpoint(Protocol):
    """Answers chat messages (`ChatEndpoint`)."""

    async def ask(self, messages: list[dict[str, str]]) -> Reply:
        """Raises `Unavailable` or `EvaluationFailed`."""
        ...


class JudgeEvaluator:
    """One `judge` table at work."""

    def __init__(self, table: Judge, endpoint: Endpoint, budget: Budget) -> None:
        self._table = table
        self._name = evaluator_name(table)
        self._endpoint = endpoint
        self._budget = budget
        self._turn = asyncio.Semaphore(table.concurrency)
        self._rubric_digest = _digest(table.rubric)

    async def evaluate(self, sealed: TrajectorySealed) -> Evaluation:
        """The judge's score. Raises `EvaluationFailed` after the last try, `BudgetSpent` before a call."""
        prompt = await asyncio.to_thread(rubric_prompt, self._table, sealed)
        messages = [{"role": "user", "content": prompt}]
        usage = {"calls": 0, "prompt_tokens": 0, "answer_tokens": 0}
        trouble = ""
        for attempt in range(self._table.tries):
            if attempt:
                logger.info("%s, %s: %s; trying again", self._name, sealed.trajectory_id, trouble)
            try:
                reply = await self._call(messages, sealed.run_id, usage)
                answer = read_answer(reply.text, self._table)
            except Unavailable as exc:
                trouble = str(exc)
                await self._pause(attempt, exc.retry_after_s)
            except UnusableAnswer as exc:
                self._count("unusable")
                trouble = f"the answer cannot be used: {exc}"
                messages = [*messages[:1], *_correction(reply.text, str(exc), self._table)]
                await self._pause(attempt, 0)
            else:
                self._count("answered")
                return self._evaluation(answer, reply, prompt, usage)
        raise EvaluationFailed(f"no usable answer in {self._table.tries} tries; the last: {trouble}")

    async def _call(self, messages: list[dict[str, str]], run_id: str, usage: dict[str, int]) -> Reply:
        table = self._table
        async with self._turn:
            self._budget.begin_call(
                self._name, run_id, max_calls=table.max_calls, max_tokens=table.max_tokens_spent
            )
            usage["calls"] += 1
            try:
                reply = await self._endpoint.ask(messages)
            except Unavailable:
                self._count("unavailable")
                raise
            except EvaluationFailed:
                self._count("refused")
                raise
        self._budget.used_tokens(self._name, run_id, reply.prompt_tokens + reply.answer_tokens)
        usage["prompt_tokens"] += reply.prompt_tokens
        usage["answer_tokens"] += reply.answer_tokens
        tokens = counter("evaluator_tokens", "evaluator", "kind")
        tokens.labels(self._name, "prompt").inc(reply.prompt_tokens)
        tokens.labels(self._name, "answer").inc(reply.answer_tokens)
        return reply

    async def _pause(self, attempt: int, at_least_s: float) -> None:
        if attempt + 1 < self._table.tries:
            pause_s = self._table.retry_ms / 1000 * 2**attempt * random.uniform(0.75, 1.25)
            await asyncio.sleep(min(_MAX_PAUSE_S, max(at_least_s, pause_s)))

    def _count(self, outcome: str) -> None:
        counter("evaluator_calls", "evaluator", "outcome").labels(self._name, outcome).inc()

    def _evaluation(
        self, answer: JudgeAnswer, reply: Reply, prompt: str, usage: dict[str, int]
    ) -> Evaluation:
        return Evaluation(
            rewards={reward_name(self._table): answer.score},
            reason=answer.reason,
            extra={
                "model": reply.model,
                "rubric_digest": self._rubric_digest,
                "prompt_digest": _digest(prompt),
                "usage": usage,
            },
        )


def rubric_prompt(table: Judge, sealed: TrajectorySealed) -> str:
    """The rubric filled for one trajectory. Raises `EvaluationFailed` where it names what is not there."""
    values: dict[str, Callable[[], str]] = {
        "messages": lambda: transcript(sealed),
        "answer": lambda: last_answer(sealed) or _EMPTY,
        "ground_truth": lambda: _text(at_path(sealed.metadata, table.ground_truth)),
    }
    for name in places(table.rubric) - values.keys():
        path = name.removeprefix("metadata.")
        values[name] = lambda path=path: _text(at_path(sealed.metadata, path))  # type: ignore[misc]
    bounded = {name: _bounded(value, table.max_prompt_chars) for name, value in values.items()}
    return f"{filled(table.rubric, bounded)}\n\n{instruction(table)}"


def _bounded(value: Callable[[], str], max_chars: int) -> Callable[[], str]:
    return lambda: shortened(value(), max_chars)


def _correction(said: str, problem: str, table: Judge) -> list[dict[str, str]]:
    return [
        {"role": "assistant", "content": said or _EMPTY},
        {"role": "user", "content": f"That cannot be used: {problem}. {instruction(table)}"},
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"
