"""The whole gateway over several real engines: what clients see, and what the steps say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from gateway.settings import GatewaySettings
from tests.unit.gateway.engines.make_golden import sglang, vllm
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import reply_body
from tests.unit.gateway.upstreams.pool_engines import QUIET, Answering, engines, pool, published, until


@asynccontextmanager
async def gateway_over(
    folder: Path, *pools: Any, upstreams: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[RunningGateway]:
    path = folder / "upstreams.json"
    path.write_text(json.dumps({**QUIET, **(upstreams or {}), "pools": list(pools)}))
    unused = GatewaySettings().upstream_url
    async with running_gateway(unused, upstreams_file=path, **settings) as gateway:
        await gateway.register()
        yield gateway


def says(replies: dict[str, bytes]) -> Answering:
    """Answers with recorded replies, streamed where asked for."""

    async def answering(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return web.Response(body=replies["whole"], content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(replies["stream"])
        return response

    return answering


async def test_engines_of_different_kinds_give_equally_exact_steps(tmp_path: Path) -> None:
    async with engines("v", "s") as (v, s):
        v.answers, s.answers = says(vllm("vllm")), says(sglang())
        pools = [pool("policy", v), pool("other", s, engine={"kind": "sglang"})]
        async with gateway_over(tmp_path, *pools) as gateway:
            for model in ("policy", "other"):
                assert (await gateway.chat({**HI, "model": model}))[0] == 200
                status, text = await gateway.chat_text({**HI, "model": model, "stream": True})
                assert status == 200
                assert "Yes" in text
                assert not [n for n in ("token_ids", "sglext", "meta_info", "weight_version") if n in text]
            steps = gateway.steps
    assert [(step.engine.engine, step.engine.policy) for step in steps] == [("v", "policy")] * 2 + [
        ("s", "other")
    ] * 2
    assert {tuple(step.response_ids) for step in steps} == {(785, 1110, 9454, 151645)}
    assert {tuple(step.response_logprobs) for step in steps} == {(-0.25, -0.5, -0.125, -0.0625)}
    assert all(step.token_source == "engine" and step.trainable and not step.integrity for step in steps)
    assert steps[0].engine.policy_version_start == 7


async def test_a_judge_is_captured_and_never_trained_on_nor_given_the_policys_version(tmp_path: Path) -> None:
    async with engines("p", "j") as (p, j):
        pools = [pool("default", p, aliases=["claude-sonnet-4-5"]), pool("judge", j, trainable=False)]
        async with gateway_over(tmp_path, *pools) as gateway:
            gateway.policies.take(published(7, policy="default"))
            for model in ("judge", "claude-sonnet-4-5"):
                assert (await gateway.chat({**HI, "model": model}))[0] == 200
            judged, sampled = gateway.steps
    assert (judged.engine.policy, judged.trainable, judged.token_source) == ("judge", False, "engine")
    assert (judged.engine.policy_version_start, judged.engine.policy_version_end) == (None, None)
    assert (sampled.engine.policy, sampled.trainable) == ("default", True)
    assert (sampled.engine.policy_version_start, sampled.engine.policy_version_end) == (7, 7)


async def test_an_unknown_model_is_a_404_that_lists_the_known_ones_and_is_captured(tmp_path: Path) -> None:
    async with engines("p") as (p,), gateway_over(tmp_path, pool("policy", p)) as gateway:
        status, reply = await gateway.chat({**HI, "model": "gpt-9"})
        assert (status, reply["error"]["code"], reply["error"]["param"]) == (404, "model_not_found", "model")
        assert "`policy`" in reply["error"]["message"]
        async with gateway.http.get(f"{gateway.url}/v1/models") as response:
            assert [entry["id"] for entry in (await response.json())["data"]] == ["policy"]
        (step,) = gateway.steps
    assert step.status == "failed"


async def test_retokenized_steps_are_marked_and_not_trainable(tmp_path: Path) -> None:
    async with engines("p") as (p,):

        async def without_ids(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            reply = reply_body()
            del reply["choices"][0]["token_ids"]
            del reply["prompt_token_ids"]
            return web.json_response(reply)

        p.answers = without_ids
        engine = {"kind": "openai", "tokenizer": f"{__name__}:Letters"}
        async with gateway_over(tmp_path, pool("policy", p, engine=engine)) as gateway:
            assert (await gateway.chat({**HI, "model": "policy"}))[0] == 200
            (step,) = gateway.steps
    assert (step.token_source, step.trainable) == ("retokenized", False)
    assert list(step.response_ids) == [ord(letter) for letter in "Hello you"]
    assert "length_mismatch" in step.integrity


class Letters:
    def prompt_ids(self, messages: Any, tools: Any) -> list[int]:
        return [1, 2, 3]

    def response_ids(self, messages: Any, tools: Any, turn: dict[str, Any]) -> list[int]:
        return [ord(letter) for letter in turn["content"]]


async def test_a_call_is_answered_and_captured_once_though_an_engine_turned_it_away(tmp_path: Path) -> None:
    async with engines("a", "b") as (a, b):

        async def away(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            return web.Response(status=503)

        a.answers = away
        async with gateway_over(tmp_path, pool("policy", a, b)) as gateway:
            ids = [f"t{i}" for i in range(6)]
            for trajectory in ids:
                await gateway.register(trajectory)
            replies = await asyncio.gather(
                *(gateway.chat({**HI, "model": "policy"}, at=f"/{t}/p1") for t in ids)
            )
            await until(lambda: len(gateway.steps) == 6)
            steps = gateway.steps
    assert {status for status, _ in replies} == {200}
    assert a.asked
    assert {step.engine.engine for step in steps} == {"b"}
