"""Pools over real HTTP engines: names, affinity, retries, breaker, health."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from gateway.engine import Answer
from gateway.upstream import Upstream, UpstreamFailed
from tests.unit.gateway.scripted_engine import reply_body
from tests.unit.gateway.upstreams.pool_engines import (
    ask,
    call_for,
    engines,
    pool,
    status,
    until,
    upstream_of,
)


async def failure_of(upstream: Upstream, model: str = "policy", **options: Any) -> UpstreamFailed:
    with pytest.raises(UpstreamFailed) as caught:
        await ask(upstream, model, **options)
    return caught.value


async def test_an_answer_says_which_engine_gave_it() -> None:
    async with (
        engines("a") as (a,),
        upstream_of(pool("policy", a, engine={"logprobs_mode": "raw"})) as upstream,
    ):
        answer = await ask(upstream)
    assert (answer.engine, answer.policy, answer.trainable) == ("a", "policy", True)
    assert answer.logprobs_mode == "raw"
    assert answer.choices[0].ids == [10, 11, 12]
    assert a.asked[0]["model"] == "tiny"


async def test_calls_of_a_trajectory_stay_at_one_engine_and_trajectories_spread() -> None:
    async with engines("a", "b", "c") as all_, upstream_of(pool("policy", *all_)) as upstream:
        for trajectory in range(12):
            chosen = [(await ask(upstream, affinity=f"t{trajectory}")).engine for _ in range(3)]
            assert len(set(chosen)) == 1
        assert len([e for e in all_ if e.asked]) > 1


async def test_calls_under_way_are_counted_and_a_busy_engine_spills() -> None:
    async with (
        engines("a", "b") as both,
        upstream_of(pool("policy", *both, spill_calls=2)) as upstream,
        asyncio.TaskGroup() as group,
    ):
        release = asyncio.Event()

        async def slow(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            await release.wait()
            return web.json_response(reply_body())

        for engine in both:
            engine.answers = slow
        calls = [group.create_task(ask(upstream)) for _ in range(6)]
        await until(lambda: sum(len(e.asked) for e in both) == 6)
        release.set()
    assert Counter(call.result().engine for call in calls).most_common()[-1][1] >= 2
    assert all(member["open_calls"] == 0 for member in upstream.state().values())  # type: ignore[index]


@pytest.mark.parametrize("code", [502, 503])
async def test_a_call_that_one_engine_turns_away_is_answered_by_another(code: int) -> None:
    async with engines("a", "b") as (a, b), upstream_of(pool("policy", a, b)) as upstream:
        a.answers = status(code)
        answers = [await ask(upstream, affinity=f"t{i}") for i in range(8)]
    assert {answer.engine for answer in answers} == {"b"}
    assert a.asked


async def test_an_engine_that_is_not_there_costs_no_call() -> None:
    async with engines("a", "b") as (a, b):
        policy = pool("policy", a, b)
        policy["engines"][0]["url"] = "http://127.0.0.1:9/v1"
        async with upstream_of(policy) as upstream:
            answers = [await ask(upstream, affinity=f"t{i}") for i in range(8)]
    assert {answer.engine for answer in answers} == {"b"}


@pytest.mark.parametrize("code", [400, 401, 404, 422, 500])
async def test_what_another_try_would_not_mend_is_not_repeated(code: int) -> None:
    async with engines("a", "b") as both, upstream_of(pool("policy", *both)) as upstream:
        for engine in both:
            engine.answers = status(code)
        failed = await failure_of(upstream)
    assert (failed.failure.status, failed.failure.message) == (code, f"said {code}")
    assert sum(len(engine.asked) for engine in both) == 1


@pytest.mark.parametrize(
    ("headers", "asked"), [({"Retry-After": "0"}, 3), ({"Retry-After": "60"}, 1), ({}, 1)]
)
async def test_a_429_is_repeated_only_where_it_says_soon(headers: dict[str, str], asked: int) -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a)) as upstream:
        a.answers = status(429, **headers)
        failed = await failure_of(upstream)
    assert failed.failure.status == 429
    assert failed.failure.retry_after == headers.get("Retry-After")
    assert len(a.asked) == asked


async def test_an_answer_that_breaks_off_is_never_asked_for_again() -> None:
    async with engines("a", "b") as both, upstream_of(pool("policy", *both)) as upstream:

        async def broken(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b"{")
            assert request.transport is not None
            request.transport.close()
            return response

        for engine in both:
            engine.answers = broken
        failed = await failure_of(upstream)
    assert failed.failure.code == "upstream_broke_off"
    assert sum(len(engine.asked) for engine in both) == 1


async def test_a_broken_engine_gets_no_more_calls_until_it_answers_a_probe() -> None:
    settings = {"breaker_failures": 2, "breaker_open_ms": 100, "retries": 0}
    async with engines("a") as (a,), upstream_of(pool("policy", a), **settings) as upstream:
        a.answers = status(500)
        for _ in range(2):
            await failure_of(upstream)
        failed = await failure_of(upstream)
        assert (failed.failure.status, failed.failure.code) == (503, "upstream_unavailable")
        assert failed.failure.retry_after == "1"
        assert len(a.asked) == 2
        a.answers = None
        await until(lambda: upstream.state()["a"]["breaker"] == "half_open")  # type: ignore[index]
        assert (await ask(upstream)).engine == "a"
        assert (await ask(upstream)).engine == "a"


async def test_the_health_check_moves_calls_away_and_back() -> None:
    async with (
        engines("a", "b") as (a, b),
        upstream_of(pool("policy", a, b), health_interval_ms=20) as upstream,
    ):
        a.well = False
        await until(lambda: upstream.state()["a"]["well"] is False)  # type: ignore[index]
        assert {(await ask(upstream, affinity=f"t{i}")).engine for i in range(8)} == {"b"}
        a.well = True
        await until(lambda: upstream.state()["a"]["well"])  # type: ignore[index]
        assert {(await ask(upstream, affinity=f"t{i}")).engine for i in range(16)} == {"a", "b"}


async def test_engines_that_are_all_sick_are_still_asked() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a), health_interval_ms=20) as upstream:
        a.well = False
        await until(lambda: upstream.state()["a"]["well"] is False)  # type: ignore[index]
        assert (await ask(upstream)).engine == "a"


async def test_leaving_early_cancels_the_call_at_the_engine() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a)) as upstream:
        cancelled = asyncio.Event()

        async def endless(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            try:
                while True:
                    await response.write(b": \n\n")
                    await asyncio.sleep(0.01)
            except (asyncio.CancelledError, ConnectionError):
                cancelled.set()
                raise

        a.answers = endless
        async with upstream.ask(call_for(stream=True), Answer()) as reply:
            assert reply.is_stream
            await anext(reply.parts())
        async with asyncio.timeout(20):
            await cancelled.wait()
    assert upstream.state()["a"]["open_calls"] == 0  # type: ignore[index]


async def test_a_field_that_an_api_refuses_is_asked_for_once() -> None:
    async with (
        engines("judge") as (judge,),
        upstream_of(pool("gpt", judge, engine={"kind": "openai"}, trainable=False)) as upstream,
    ):

        async def strict(_: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            if "logprobs" in body:
                said = "You are not allowed to request logprobs from this model"
                return web.json_response({"error": {"message": said}}, status=403)
            reply = reply_body()
            for name in ("token_ids", "logprobs"):
                del reply["choices"][0][name]
            del reply["prompt_token_ids"]
            return web.json_response(reply)

        judge.answers = strict
        answers = [await ask(upstream, "gpt") for _ in range(2)]
    assert [("logprobs" in body) for body in judge.asked] == [True, False, False]
    assert all(answer.choices[0].ids is None and not answer.trainable for answer in answers)


async def test_models_are_found_by_name_alias_and_default_and_others_get_a_404_that_lists_them() -> None:
    async with (
        engines("p", "j") as (p, j),
        upstream_of(
            pool("policy", p, aliases=["claude-sonnet-4-5"]), pool("judge", j, trainable=False)
        ) as upstream,
    ):
        names = ["policy", "claude-sonnet-4-5", "default", "judge"]
        assert [(await ask(upstream, name)).engine for name in names] == ["p", "p", "p", "j"]
        failed = await failure_of(upstream, "gpt-9")
        listed = json.loads(await upstream.models(authorization=""))
    assert (failed.failure.status, failed.failure.code, failed.failure.param) == (
        404,
        "model_not_found",
        "model",
    )
    assert all(f"`{name}`" in failed.failure.message for name in ("policy", "claude-sonnet-4-5", "judge"))
    assert [entry["id"] for entry in listed["data"]] == ["policy", "claude-sonnet-4-5", "judge"]
    assert {entry["max_model_len"] for entry in listed["data"]} == {4096}


async def test_the_model_list_does_without_an_engine_that_is_away() -> None:
    async with engines("p") as (p,):
        away = {"name": "j", "engines": [{"name": "j", "url": "http://127.0.0.1:9/v1"}], "trainable": False}
        async with upstream_of(pool("policy", p), away) as upstream:
            listed = json.loads(await upstream.models(authorization=""))
    assert [entry["id"] for entry in listed["data"]] == ["policy", "j"]


async def test_keys_and_client_tokens_reach_only_the_engines_they_are_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret")
    async with (
        engines("p", "j") as (p, j),
        upstream_of(pool("policy", p), pool("judge", j, engine={"api_key_env": "JUDGE_KEY"})) as upstream,
    ):
        await ask(upstream, "policy", authorization="Bearer client")
        await ask(upstream, "judge", authorization="Bearer client")
    assert "Authorization" not in p.headers[0]
    assert j.headers[0]["Authorization"] == "Bearer secret"


async def test_a_tokenizer_that_fails_costs_the_ids_and_not_the_answer() -> None:
    async with (
        engines("a") as (a,),
        upstream_of(pool("policy", a, engine={"tokenizer": f"{__name__}:BrokenTokenizer"})) as upstream,
    ):

        async def without_ids(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            reply = reply_body()
            del reply["choices"][0]["token_ids"]
            return web.json_response(reply)

        a.answers = without_ids
        answer = await ask(upstream)
    assert answer.choices[0].content == "Hello you"
    assert answer.choices[0].ids is None
    assert not answer.retokenized


class BrokenTokenizer:
    def prompt_ids(self, messages: Any, tools: Any) -> list[int]:
        raise ValueError("no template for this")


async def test_control_routes_beside_v1_can_be_asked() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a)) as upstream:
        assert json.loads(await upstream.post("/tokenize", b'{"x": 1}'))["count"] == 5
        assert await upstream.model_for("policy", authorization="") == "tiny"
    assert a.controls == [("/tokenize", {"x": 1})]
