"""Rule-based rewards: what is taken from an answer, and what it equals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_processors.evaluators.evaluation import EvaluationFailed
from stream_processors.evaluators.exact_match import ExactMatchEvaluator, extracted, number, same
from tests.support.evaluated import finished, table


def exact(**fields: Any) -> Any:
    return table(kind="exact_match", **fields)


@pytest.mark.parametrize(
    ("fields", "answer", "part"),
    [
        ({}, "  Paris \n", "Paris"),
        ({}, " \n", None),
        ({"extract": "last_line"}, "thinking\nParis", "Paris"),
        ({"extract": "number"}, "3 apples, then 1,204.50 dollars", "1,204.50"),
        ({"extract": "number"}, "It is 1,204.", "1,204"),
        ({"extract": "number"}, "one of 1,2,3", "3"),
        ({"extract": "number"}, "about -.5", "-.5"),
        ({"extract": "number"}, "none", None),
        ({"extract": "boxed"}, r"so \boxed{1} or \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ({"extract": "boxed"}, r"\boxed{7} and \boxed{never closed", "7"),
        ({"extract": "boxed"}, "7", None),
        ({"extract": "hashes"}, "1+1=2\n#### 2\nbye", "2"),
        ({"extract": "hashes"}, "2", None),
        ({"extract": "hashes"}, "####  ", None),
        ({"extract": "pattern", "pattern": "<a>(.*?)</a>"}, "<a>1</a><a>2</a>", "2"),
        ({"extract": "pattern", "pattern": r"\d+"}, "1 and 23", "23"),
        ({"extract": "pattern", "pattern": r"\d+"}, "none", None),
    ],
)
def test_what_is_taken_from_an_answer(fields: dict[str, Any], answer: str, part: str | None) -> None:
    assert extracted(exact(**fields), answer) == part


@pytest.mark.parametrize(
    ("fields", "answer", "truth", "equal"),
    [
        ({}, "New  York", "New York", True),
        ({}, "new york", "New York", False),
        ({"ignore_case": True}, "new york", "New York", True),
        ({}, "42.0", "42", False),
        ({"compare": "number"}, "42.0", "42", True),
        ({"compare": "number"}, "$1,000", "1000", True),
        ({"compare": "number"}, "1/2", "0.5", True),
        ({"compare": "number"}, "1e3", "1000", True),
        ({"compare": "number"}, "-.5", "-0.50", True),
        ({"compare": "number"}, "1/0", "1", False),
        ({"compare": "number"}, "forty-two", "42", False),
        ({"compare": "number"}, "0.3334", "1/3", False),
        ({"compare": "number", "tolerance": 0.001}, "0.3334", "1/3", True),
    ],
)
def test_what_counts_as_equal(fields: dict[str, Any], answer: str, truth: str, equal: bool) -> None:
    assert same(exact(**fields), answer, truth) is equal


@given(st.integers(-(10**30), 10**30), st.integers(0, 6))
def test_numbers_are_exact_however_long(value: int, places: int) -> None:
    written = f"{value:,}." + "0" * places
    assert number(written) == Fraction(value)


@given(st.text())
def test_no_answer_breaks_an_extraction(answer: str) -> None:
    for extract in ("whole", "last_line", "number", "boxed", "hashes"):
        part = extracted(exact(extract=extract), answer)
        assert part is None or same(exact(extract=extract), part, part)
        if part is not None:
            number(part)


def test_a_number_of_thousands_of_digits_is_none() -> None:
    assert number("9" * 5_000) is None


async def test_hit_and_miss_have_the_tables_values_and_the_rewards_name() -> None:
    evaluator = ExactMatchEvaluator(exact(extract="number", reward="math", hit=2.0, miss=-1.0))
    hit = await evaluator.evaluate(finished(answer="It is 42."))
    miss = await evaluator.evaluate(finished(answer="It is 43."))
    nothing = await evaluator.evaluate(finished(answer=None))
    assert (hit.rewards, miss.rewards, nothing.rewards) == ({"math": 2.0}, {"math": -1.0}, {"math": -1.0})
    assert (hit.extra["answer"], nothing.extra["answer"]) == ("42", None)


@pytest.mark.parametrize("truth", ["42", 42, ["41", "42"], [41, 42]])
async def test_a_truth_is_text_a_number_or_any_of_a_list(truth: Any) -> None:
    evaluator = ExactMatchEvaluator(exact(extract="number", compare="number"))
    assert (await evaluator.evaluate(finished(truth=truth))).rewards == {"exact_match": 1.0}


@pytest.mark.parametrize(
    "metadata", [{}, {"reward_model": None}, {"reward_model": {"ground_truth": None}}, {"reward_model": "x"}]
)
async def test_without_a_truth_there_is_no_reward_and_the_path_is_named(metadata: Any) -> None:
    with pytest.raises(EvaluationFailed, match=r"nothing at reward_model\.ground_truth"):
        await ExactMatchEvaluator(exact()).evaluate(finished(metadata=metadata))


async def test_a_truth_of_another_shape_fails_and_one_in_json_text_is_found() -> None:
    evaluator = ExactMatchEvaluator(exact(extract="number", compare="number"))
    with pytest.raises(EvaluationFailed, match="neither text nor a number"):
        await evaluator.evaluate(finished(truth={"a": 1}))
    as_text = finished(metadata={"reward_model": '{"ground_truth": "42"}'})
    assert (await evaluator.evaluate(as_text)).rewards == {"exact_match": 1.0}
