"""Auth: API keys begin trajectories, a signed token in the path opens one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web

from agentworld.contract.errors import ContractViolation, InvalidInput
from gateway.access import Access, without_tokens
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, reply_body, running_engine

SECRET, KEY = "a-secret-of-the-gateways", "key-of-the-runner-1"
MINE = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(
        engine.url, auth_secret=SECRET, auth_keys=["another-key-long-enough", KEY]
    ) as g:
        yield g


async def begun(gateway: RunningGateway) -> tuple[str, str]:
    """Trajectory as its path has it, and its path below a task."""
    status, reply = await gateway.post("/init_trajectory", headers=MINE)
    assert status == 200
    uid = reply["trajectory_uid"]
    assert reply["base_url"] == f"{gateway.url}/{uid}/1/v1"
    return uid, f"/{uid}/task"


async def test_a_token_opens_its_trajectory_and_every_route_of_it(gateway: RunningGateway) -> None:
    uid, at = await begun(gateway)
    bare = uid.partition("~")[0]
    assert uid != bare
    assert (await gateway.post(f"{at}/v1/register_trajectory", {}))[0] == 200
    assert (await gateway.chat(at=at))[0] == 200
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}{at}/v1", api_key="unused") as client:
        assert (await client.models.list()).data
        await client.chat.completions.create(model="default", messages=HI["messages"])  # type: ignore[arg-type]
    async with anthropic.AsyncAnthropic(base_url=gateway.url + at, api_key="unused") as client:
        asked: Any = {"model": "default", "messages": HI["messages"]}
        await client.messages.create(**asked, max_tokens=9)
        assert (await client.messages.count_tokens(**asked)).input_tokens
    assert (await gateway.post(f"{at}/v1/reward", {"value": 1}))[0] == 200
    step = {"trajectory_uid": uid, "prompt_uid": "task", "prompt_ids": [1], "response_ids": [2]}
    assert await gateway.post("/submit_steps", {"steps": [step]}) == (200, {"accepted": 1})
    body = {"reason": f"GET {gateway.url}{at}/v1/models failed", "outcome": "failed"}
    assert (await gateway.post(f"{at}/v1/complete_trajectory", body))[0] == 200
    token = uid.removeprefix(bare)
    assert {event.trajectory_id for event in gateway.events} == {bare}
    topics = ("trajectory-events", "trajectory-directory")
    assert not [r for topic in topics for r in gateway.log.records(topic) if token.encode() in r.value]
    assert gateway.completions[0].reason.endswith(f"/{bare}~***/task/v1/models failed")


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses", "completions"])
async def test_without_a_token_for_just_this_trajectory_a_call_is_401_in_the_protocols_shape(
    gateway: RunningGateway, engine: ScriptedEngine, path: str
) -> None:
    uid, _ = await begun(gateway)
    other, _ = await begun(gateway)
    bare, expires, mac = uid.split("~")
    wrong = [
        bare,
        f"{bare}~{expires}",
        f"{bare}~{int(expires) + 1}~{mac}",
        f"{bare}~{expires}~{mac[:-1]}",
        f"{bare}~{expires}~",
        f"{bare}~{expires}~{mac}~",
        f"{bare}~{expires}~" + "\u00e9" * 22,
        f"{other.partition('~')[0]}~{expires}~{mac}",
        f"~{expires}~{mac}",
    ]
    for name in wrong:
        async with gateway.http.post(f"{gateway.url}/{name}/task/v1/{path}", json=HI) as response:
            reply = await response.json()
            assert response.status == 401, name
            assert response.headers["WWW-Authenticate"] == "Bearer"
            kind = "authentication_error"
            assert reply["error"]["type"] == kind, reply
            assert ("code" in reply["error"]) is (path != "messages")
    assert not engine.requests
    assert not gateway.events


async def test_routes_without_a_trajectory_need_a_key(gateway: RunningGateway) -> None:
    step = {"trajectory_uid": "t", "prompt_uid": "p", "prompt_ids": [1], "response_ids": [2]}
    calls: list[tuple[str, Any]] = [
        ("/init_trajectory", None),
        ("/v1/chat/completions", HI),
        ("/generate", {"prompt_ids": [1]}),
        ("/generate", {"prompt_ids": [1], "trajectory_uid": "t", "prompt_uid": "p"}),
        ("/compute_reward", {"prompt_ids": [1], "response_ids": [2]}),
        ("/submit_steps", {"steps": [step]}),
        ("/t/p/v1/register_trajectory", {}),
    ]
    for path, body in calls:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": SECRET}):
            status, reply = await gateway.post(path, body, headers=headers)
            assert (status, reply["error"]["code"]) == (401, "unauthorized"), path
    assert not gateway.events
    for path in ("/metrics", "/v1/models"):
        async with gateway.http.get(gateway.url + path) as response:
            assert response.status == 401
        async with gateway.http.get(gateway.url + path, headers={"x-api-key": KEY}) as response:
            assert response.status == 200
    async with gateway.http.get(f"{gateway.url}/health") as response:
        assert response.status == 200
    assert (await gateway.post("/t/p/v1/register_trajectory", {}, headers=MINE))[0] == 200
    assert (await gateway.post("/submit_steps", {"steps": [step]}, headers=MINE))[0] == 200
    assert (await gateway.post("/v1/chat/completions", HI, headers=MINE))[0] == 200


async def test_the_gateways_own_key_never_reaches_an_engine_and_an_agents_does(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    _, at = await begun(gateway)
    await gateway.post(f"{at}/v1/register_trajectory", {})
    for headers in (MINE, {"x-api-key": KEY}, {"Authorization": "Bearer agents"}):
        assert (await gateway.chat(at=at, headers=headers))[0] == 200
    assert [h.get("Authorization") for h in engine.headers] == [None, None, "Bearer agents"]


async def test_without_auth_a_token_is_no_name(engine: ScriptedEngine) -> None:
    async with running_gateway(engine.url) as gateway:
        _, reply = await gateway.post("/init_trajectory")
        assert "~" not in reply["trajectory_uid"]
        assert (await gateway.chat(at="/t~1~x/p"))[0] == 422


async def test_calls_with_tokens_are_limited_by_trajectory(engine: ScriptedEngine) -> None:
    settings: dict[str, Any] = {"auth_secret": SECRET, "auth_keys": [KEY], "max_calls_per_key": 1}
    async with running_gateway(engine.url, **settings) as gateway:
        _, one = await begun(gateway)
        _, two = await begun(gateway)
        for at in (one, two):
            await gateway.post(f"{at}/v1/register_trajectory", {})
        statuses: list[int] = []

        async def script(_: Any, __: dict[str, Any]) -> Any:
            engine.script = None
            statuses.append((await gateway.chat(at=one))[0])
            statuses.append((await gateway.chat(at=two))[0])
            return web.json_response(reply_body())

        engine.script = script
        assert (await gateway.chat(at=one))[0] == 200
    assert statuses == [429, 200]


def test_an_expired_token_is_refused_and_says_so() -> None:
    now = [1000.0]
    access = Access(SECRET, [KEY], ttl_ms=5_000, clock=lambda: now[0])
    uid = access.signed("t1")
    assert access.opened(uid) == "t1"
    now[0] += 5.5
    with pytest.raises(InvalidInput, match="expired"):
        access.opened(uid)
    other = Access("another-secret-as-long", [KEY], ttl_ms=5_000, clock=lambda: now[0])
    with pytest.raises(InvalidInput, match="no valid token"):
        other.opened(access.signed("t1"))


@pytest.mark.parametrize(
    ("secret", "keys"), [("short", [KEY]), (SECRET, []), ("", [KEY]), (SECRET, ["short"]), (SECRET, [""])]
)
def test_settings_that_would_be_no_protection_are_refused(secret: str, keys: list[str]) -> None:
    with pytest.raises(ContractViolation, match="AGENTWORLD_GATEWAY_AUTH_SECRET"):
        Access(secret, keys, ttl_ms=1)


def test_tokens_are_cut_from_texts_and_nothing_else_is() -> None:
    uid = Access(SECRET, [KEY], ttl_ms=1_000).signed("t1")
    assert (
        without_tokens(f"at http://x/{uid}/p/v1: ~5 minutes ~1~2")
        == "at http://x/t1~***/p/v1: ~5 minutes ~1~2"
    )
