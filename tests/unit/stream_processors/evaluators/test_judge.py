"""A judge against a real HTTP server: good, malformed, wrong, throttled and slow answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from agentworld.contract.errors import InvalidInput
from stream_processors.evaluators.budget import Budget
from stream_processors.evaluators.evaluation import BudgetSpent, EvaluationFailed
from stream_processors.evaluators.judge.endpoint import ChatEndpoint
from stream_processors.evaluators.judge.judging import JudgeEvaluator
from stream_processors.evaluators.secret import Secret, read_secret
from tests.support.evaluated import finished, judge_table
from tests.support.judge import Play, ScriptedJudge, echoes_the_key, says, score, slow, status
from tests.support.serving import serving


@asynccontextmanager
async def judging(
    plays: Iterable[Play] = (), *, budget: Budget | None = None, key: str = "sk-test", **fields: Any
) -> AsyncIterator[tuple[JudgeEvaluator, ScriptedJudge]]:
    judge = ScriptedJudge(plays)
    async with serving(judge.app) as url, aiohttp.ClientSession() as session:
        table = judge_table(url, **fields)
        yield JudgeEvaluator(table, ChatEndpoint(table, session, Secret(key)), budget or Budget()), judge


async def test_a_good_answer_is_the_reward_with_where_it_came_from() -> None:
    async with judging([says(score(0.25, "thin"))], reward="quality") as (evaluator, judge):
        evaluation = await evaluator.evaluate(finished(answer="It is 42."))
    assert evaluation.rewards == {"quality": 0.25}
    assert evaluation.reason == "thin"
    assert evaluation.extra["model"] == "judge-7b-0926"
    assert evaluation.extra["usage"] == {"calls": 1, "prompt_tokens": 100, "answer_tokens": 10}
    assert evaluation.extra["prompt_digest"] != evaluation.extra["rubric_digest"]
    [request] = judge.requests
    assert (request["temperature"], request["model"]) == (0, "judge-7b")
    assert request["response_format"]["json_schema"]["schema"]["properties"]["score"] == {
        "type": "number",
        "minimum": 0.0,
        "maximum": 1.0,
    }
    assert judge.keys == ["Bearer sk-test"]
    assert "Answer: It is 42.\nTruth: 42" in judge.prompts[0]
    assert "[user]\n2+2é?" in judge.prompts[0]


@pytest.mark.parametrize(
    "text",
    [
        "```json\n" + score(1, "ok") + "\n```",
        'Let me see. <think>{"score": 0, "reason": "no"}</think>' + score(1, "ok"),
        "Here it is: " + score(1.0, "ok"),
    ],
)
async def test_an_endpoint_without_response_format_may_wrap_its_answer(text: str) -> None:
    async with judging([says(text)], response_format="none") as (evaluator, judge):
        evaluation = await evaluator.evaluate(finished())
    assert (evaluation.rewards, evaluation.reason) == ({"judge": 1.0}, "ok")
    assert "response_format" not in judge.requests[0]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("I would say 0.5", "no JSON object"),
        ('{"score": 0.5', "no JSON object"),
        ('{"score": 0.5,}', "JSON is malformed"),
        ('{"score": "0.5", "reason": "x"}', "Expected `float`"),
        ('{"score": true, "reason": "x"}', "Expected `float`"),
        ('{"score": NaN, "reason": "x"}', "JSON is malformed"),
        ('{"score": 0.5}', "missing required field `reason`"),
        ('{"score": 0.5, "reason": "x", "more": 1}', "unknown field `more`"),
        ('{"score": 1.5, "reason": "x"}', "score 1.5 is not from 0 to 1"),
        ('{"score": -0.1, "reason": "x"}', "score -0.1 is not from 0 to 1"),
        ("", "no JSON object"),
    ],
)
async def test_an_answer_against_the_schema_is_asked_for_again_with_what_was_wrong(
    text: str, wrong: str
) -> None:
    async with judging([says(text), says(score(0.5))]) as (evaluator, judge):
        evaluation = await evaluator.evaluate(finished())
    assert evaluation.rewards == {"judge": 0.5}
    assert evaluation.extra["usage"]["calls"] == 2
    first, again = judge.requests
    assert [message["role"] for message in again["messages"]] == ["user", "assistant", "user"]
    assert again["messages"][0] == first["messages"][0]
    assert wrong in again["messages"][2]["content"]


async def test_after_the_last_try_the_failure_says_what_was_wrong_last() -> None:
    async with judging(tries=2) as (evaluator, judge):
        judge.otherwise = says("no")
        with pytest.raises(EvaluationFailed, match=r"no usable answer in 2 tries.*no JSON object"):
            await evaluator.evaluate(finished())
    assert len(judge.requests) == 2


@pytest.mark.parametrize(
    "bad",
    [
        status(429, "slow down", Retry_After="0"),
        status(500),
        status(503, Retry_After="nonsense"),
        status(200, "<html>not JSON</html>"),
        status(200, '{"choices": []}'),
        slow(5, says(score(1))),
    ],
)
async def test_a_passing_trouble_is_tried_again(bad: Play) -> None:
    async with judging([bad, says(score(0.5))], timeout_ms=500) as (evaluator, judge):
        evaluation = await evaluator.evaluate(finished())
    assert evaluation.rewards == {"judge": 0.5}
    assert len(judge.requests) == 2


async def test_a_lost_connection_is_tried_again_and_then_named() -> None:
    async with judging(tries=2) as (_, _judge), aiohttp.ClientSession() as session:
        table = judge_table("http://127.0.0.1:9/v1", tries=2)
        evaluator = JudgeEvaluator(table, ChatEndpoint(table, session, Secret("")), Budget())
        with pytest.raises(EvaluationFailed, match="2 tries; the last: ClientConnector"):
            await evaluator.evaluate(finished())


@pytest.mark.parametrize("code", [400, 401, 404, 307])
async def test_a_refusal_is_not_tried_again(code: int) -> None:
    async with judging([echoes_the_key(code)], key="sk-very-secret") as (evaluator, judge):
        with pytest.raises(EvaluationFailed, match=rf"answered {code}: wrong key: Bearer \*\*\*") as failure:
            await evaluator.evaluate(finished())
    assert "sk-very-secret" not in str(failure.value)
    assert len(judge.requests) == 1


async def test_no_more_calls_at_a_time_than_allowed() -> None:
    import asyncio

    async with judging(concurrency=2) as (evaluator, judge):
        judge.otherwise = slow(0.05, says(score(1)))
        await asyncio.gather(*(evaluator.evaluate(finished(f"t-{index}")) for index in range(6)))
    assert judge.most_open == 2


async def test_a_budget_of_calls_counts_tries_and_ends_the_calls_of_its_run_alone() -> None:
    budget = Budget()
    async with judging([status(500)], budget=budget, max_calls=3) as (evaluator, judge):
        await evaluator.evaluate(finished("a"))
        await evaluator.evaluate(finished("b"))
        with pytest.raises(BudgetSpent, match="3 of 3 calls"):
            await evaluator.evaluate(finished("c"))
        assert len(judge.requests) == 3
        await evaluator.evaluate(finished("d", run_id="another"))
    assert (budget.spent("judge", "run-1").calls, budget.spent("judge", "another").calls) == (3, 1)


async def test_a_budget_of_tokens_is_what_the_endpoint_counted() -> None:
    async with judging(max_tokens_spent=150) as (evaluator, judge):
        await evaluator.evaluate(finished("a"))
        await evaluator.evaluate(finished("b"))
        with pytest.raises(BudgetSpent, match="220 of 150 tokens"):
            await evaluator.evaluate(finished("c"))
    assert len(judge.requests) == 2


def test_what_was_spent_is_known_after_a_restart(tmp_path, caplog) -> None:
    path = tmp_path / "spent.json"
    before = Budget(path)
    before.begin_call("judge", "run", max_calls=2, max_tokens=0)
    before.begin_call("judge", "run", max_calls=2, max_tokens=0)
    before.used_tokens("judge", "run", 110)
    after = Budget(path)
    assert (after.spent("judge", "run").calls, after.spent("judge", "run").tokens) == (2, 110)
    for _ in range(3):
        with pytest.raises(BudgetSpent):
            after.begin_call("judge", "run", max_calls=2, max_tokens=0)
    assert [record.message for record in caplog.records] == [
        "evaluator judge has spent its budget for run run: 2 of 2 calls; no further call is made"
    ]
    path.write_text("{")
    with pytest.raises(InvalidInput, match=r"spent\.json.*Mend or remove it"):
        Budget(path)


def test_a_key_is_named_by_its_variable_and_never_shown() -> None:
    with pytest.raises(InvalidInput, match="evaluator j: the environment variable JUDGE_KEY is not set"):
        read_secret("JUDGE_KEY", {}, whose="j")
    with pytest.raises(InvalidInput) as wrong:
        read_secret("JUDGE_KEY", {"JUDGE_KEY": "sk\nbad"}, whose="j")
    assert "bad" not in str(wrong.value)
    secret = read_secret("JUDGE_KEY", {"JUDGE_KEY": " sk-1 \n"}, whose="j")
    assert secret.headers == {"Authorization": "Bearer sk-1"}
    assert (repr(secret), str(secret), secret.hide("is sk-1?")) == ("***", "***", "is ***?")
    assert read_secret("", {}, whose="j").headers == {}
