"""Claw-R1's `POST /compute_reward`, through a function that the settings name."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from agentworld.contract.errors import AgentWorldError, ContractViolation, InvalidInput
from gateway.bodies import ComputedReward, RewardQuestion

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., Any]
"""Called with the fields of `RewardQuestion` by name; gives a number, or a mapping with `reward_score` and
perhaps `reward_extra_info`; may be a coroutine function."""

_EXAMPLE = "set AGENTWORLD_GATEWAY_REWARD_FUNCTION to package.module:function"


class RewardFailed(AgentWorldError):
    """The function raised, or gave no reward."""


def load_reward_function(path: str) -> RewardFunction | None:
    """The function at `package.module:function`; None for an empty path. Raises `ContractViolation`."""
    if not path:
        return None
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ContractViolation(f"reward function {path!r} cannot be imported ({exc}): {_EXAMPLE}") from exc
    if not callable(function):
        raise ContractViolation(f"reward function {path!r} cannot be called: {_EXAMPLE}")
    return function  # type: ignore[no-any-return]


async def compute_reward(function: RewardFunction | None, question: RewardQuestion) -> ComputedReward:
    """Ask the function. Raises `InvalidInput` 501 where there is none, `RewardFailed`."""
    if function is None:
        raise InvalidInput(
            f"no reward function is configured here: {_EXAMPLE}, or reward the trajectory with "
            "POST /{trajectory_id}/{prompt_id}/v1/reward",
            code="no_reward_function",
            status=501,
        )
    fields = {name: getattr(question, name) for name in type(question).model_fields}
    try:
        if inspect.iscoroutinefunction(function):
            given = await function(**fields)
        else:
            given = await asyncio.to_thread(function, **fields)
        return _computed(given)
    except Exception as exc:
        logger.exception("the reward function failed")
        raise RewardFailed(
            f"the reward function failed ({type(exc).__name__}): the gateway's log says why"
        ) from exc


def _computed(given: Any) -> ComputedReward:
    if not isinstance(given, Mapping):
        given = {"reward_score": given}
    score = float(given["reward_score"])
    if not math.isfinite(score):
        raise ValueError(f"reward_score is {score}")
    return ComputedReward(reward_score=score, reward_extra_info=dict(given.get("reward_extra_info") or {}))
