"""Python functions as evaluators: what they may say, and what becomes of what they may not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agentworld.contract.errors import InvalidInput
from agentworld.platform.resolved import resolve_trajectory
from stream_processors.evaluators.evaluation import EvaluationFailed
from stream_processors.evaluators.plugin import PluginEvaluator, answer_of, load_function
from tests.support.evaluated import finished, table


def plugin(function: str, **fields: Any) -> PluginEvaluator:
    made = table(kind="plugin", function=f"tests.support.plugins:{function}", **fields)
    return PluginEvaluator(made, load_function(made.function))


async def test_plain_and_async_functions_get_the_resolved_trajectory() -> None:
    sealed = finished(turns=3)
    whole = resolve_trajectory(sealed, None)
    assert (await plugin("steps").evaluate(sealed)).rewards == {"plugin": 3.0}
    tokens = float(len(whole.steps[-1].prompt_ids))
    assert tokens > 40
    assert (await plugin("prompt_tokens", name="tokens").evaluate(sealed)).rewards == {"tokens": tokens}


async def test_a_function_may_give_several_rewards_and_its_own_verdict() -> None:
    evaluation = await plugin("everything", reward="main").evaluate(finished("t-9"))
    assert evaluation.rewards == {"main": 0.5, "format": 1.0, "length": -0.25}
    assert (evaluation.decision, evaluation.reason, evaluation.extra) == ("hold", "of t-9", {"seen": [1, 2]})
    assert (await plugin("verdict_alone").evaluate(finished())).decision == "reject"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", r"tests\.support\.plugins:broken raised KeyError: 'metadata'"),
        ("hangs", r"no answer within 0\.05 s"),
        ("never_answers", r"no answer within 0\.05 s"),
    ],
)
async def test_a_function_that_raises_or_hangs_fails_by_name(name: str, says: str) -> None:
    with pytest.raises(EvaluationFailed, match=says):
        await plugin(name, timeout_ms=50).evaluate(finished())


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (None, "not a number"),
        ("1", "not a number"),
        (math.nan, "is nan"),
        ({"reward": math.inf}, "is inf"),
        ({}, "neither reward, rewards nor verdict"),
        ({"score": 1}, "unknown score"),
        ({"verdict": "maybe"}, "'maybe' is none of accept, reject, hold"),
        ({"rewards": {"a": "b"}}, "a is str"),
        ({"rewards": 3}, "not iterable"),
        ({"reward": 1, "extra": {"x": object()}}, "unsupported"),
    ],
)
def test_what_is_no_answer_is_refused(said: Any, wrong: str) -> None:
    with pytest.raises((ValueError, TypeError), match=wrong):
        answer_of(said, "plugin")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("tests.support.plugins:none", "AttributeError"),
        ("tests.no_such:x", "ModuleNotFoundError: No module named 'tests.no_such'"),
        ("tests.support.plugins:NOT_A_FUNCTION", "cannot be called"),
    ],
)
def test_a_wrong_path_is_a_clear_error(path: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        load_function(path)
