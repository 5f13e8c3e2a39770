"""A Python function as an evaluator."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any, get_args

import msgspec

from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import TrajectorySealed
from agentworld.contract.events.trajectory_events import Decision
from agentworld.platform.resolved import ResolvedTrajectory, resolve_trajectory
from stream_processors.evaluators.evaluation import Evaluation, EvaluationFailed
from stream_processors.evaluators.kinds import Plugin, evaluator_name, reward_name

logger = logging.getLogger(__name__)

Function = Callable[[ResolvedTrajectory], Any]

_KEYS = frozenset({"reward", "rewards", "verdict", "reason", "extra"})


def load_function(path: str) -> Function:
    """The function at `package.module:function`. Raises `InvalidInput` that says what is wrong."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as exc:  # what a module raises at its import is its own
        raise InvalidInput(
            f"evaluator function {path} cannot be imported: {type(exc).__name__}: {exc}. Write "
            "package.module:function, and have the package on PYTHONPATH",
            code="no_evaluator_function",
        ) from exc
    if not callable(found):
        raise InvalidInput(f"evaluator function {path} cannot be called", code="no_evaluator_function")
    function: Function = found
    return function


class PluginEvaluator:
    """One `plugin` table at work. A plain function that overran its time keeps its thread until it ends."""

    def __init__(self, table: Plugin, function: Function) -> None:
        self._table = table
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        self._turn = asyncio.Semaphore(table.concurrency)
        self._threads = ThreadPoolExecutor(table.concurrency, thread_name_prefix=evaluator_name(table))

    async def evaluate(self, sealed: TrajectorySealed) -> Evaluation:
        """What the function says. Raises `EvaluationFailed` where it raises, overruns or says nonsense."""
        name, limit_s = self._table.function, self._table.timeout_ms / 1000
        trajectory = await asyncio.to_thread(resolve_trajectory, sealed, sealed.reward)
        async with self._turn:
            try:
                async with asyncio.timeout(limit_s) as limit:
                    said = await self._call(trajectory)
            except Exception as exc:
                if limit.expired():
                    raise EvaluationFailed(f"{name} gave no answer within {limit_s:g} s") from exc
                logger.warning("%s failed for %s", name, sealed.trajectory_id, exc_info=True)
                raise EvaluationFailed(f"{name} raised {type(exc).__name__}: {exc}") from exc
        try:
            return answer_of(said, reward_name(self._table))
        except (ValueError, TypeError) as exc:
            raise EvaluationFailed(f"{name} gave no reward or verdict: {exc}") from exc

    async def _call(self, trajectory: ResolvedTrajectory) -> Any:
        if self._is_async:
            return await self._function(trajectory)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._function, trajectory)


def answer_of(said: Any, name: str) -> Evaluation:
    """A number, or a mapping with `reward` or `rewards`, `verdict`, `reason`, `extra`, as an `Evaluation`.

    Raises `ValueError` or `TypeError` for anything else.
    """
    if not isinstance(said, Mapping):
        return Evaluation(rewards={name: _finite(said, name)})
    if unknown := said.keys() - _KEYS:
        raise ValueError(
            f"unknown {', '.join(sorted(map(str, unknown)))}; known are {', '.join(sorted(_KEYS))}"
        )
    given = dict(said.get("rewards") or {})
    if said.get("reward") is not None:
        given[name] = said["reward"]
    verdict = said.get("verdict")
    if verdict is not None and verdict not in get_args(Decision):
        raise ValueError(f"verdict {verdict!r} is none of {', '.join(get_args(Decision))}")
    if not given and verdict is None:
        raise ValueError("neither reward, rewards nor verdict is there")
    # Also proves that it can stand in an event.
    extra = msgspec.json.decode(msgspec.json.encode(dict(said.get("extra") or {})))
    return Evaluation(
        rewards={str(each): _finite(value, str(each)) for each, value in given.items()},
        decision=verdict,
        reason=str(said.get("reason") or ""),
        extra=extra,
    )


def _finite(value: Any, name: str) -> float:
    if not isinstance(value, Real):
        raise TypeError(f"{name} is {type(value).__name__}, not a number")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {float(value)}")
    return float(value)
