"""The control routes, with Claw-R1's paths and field names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentworld.contract.codec import decode
from agentworld.contract.delta import expand
from agentworld.contract.ids import group_id
from agentworld.contract.topics import TRAJECTORY_DIRECTORY
from tests.unit.gateway.harness import RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, default_rollouts=4, default_run_id="run-a") as gateway:
        yield gateway


async def test_init_gives_a_fresh_id_and_a_base_url_with_1_in_the_prompts_place(
    gateway: RunningGateway,
) -> None:
    status, first = await gateway.post("/init_trajectory")
    _, second = await gateway.post("/init_trajectory")
    assert status == 200
    assert set(first) == {"trajectory_uid", "base_url"}
    assert first["base_url"] == f"{gateway.url}/{first['trajectory_uid']}/1/v1"
    assert first["trajectory_uid"] != second["trajectory_uid"]


async def test_registration_metadata_places_the_trajectory_in_its_group(gateway: RunningGateway) -> None:
    metadata = {"n_rollouts": 8, "run_id": "r", "round": 2, "rollout_index": 3, "policy": "actor", "x": [1]}
    status, reply = await gateway.post(
        "/t1/p1/v1/register_trajectory", {"channel": "val", "metadata": metadata}
    )
    assert (status, reply) == (200, {"status": "ok"})
    (event,) = gateway.registrations
    assert (event.run_id, event.channel, event.round, event.rollouts) == ("r", "val", 2, 8)
    assert (event.rollout_index, event.policy) == (3, "actor")
    assert event.group_id == group_id("r", "val", 2, "p1")
    assert event.metadata == metadata
    (record,) = gateway.log.records(TRAJECTORY_DIRECTORY.name)
    assert decode(TRAJECTORY_DIRECTORY, record.value).state == "open"


async def test_registration_without_a_body_takes_the_runs_defaults(gateway: RunningGateway) -> None:
    async with gateway.http.post(f"{gateway.url}/t1/p1/v1/register_trajectory") as response:
        assert response.status == 200
    (event,) = gateway.registrations
    assert (event.run_id, event.channel, event.rollouts, event.registered_by) == (
        "run-a",
        "train",
        4,
        "client",
    )


async def test_registering_the_same_again_changes_nothing(gateway: RunningGateway) -> None:
    await gateway.register(run_id="r")
    await gateway.register(run_id="r")
    assert len(gateway.registrations) == 1
    status, reply = await gateway.post("/t1/p1/v1/register_trajectory", {"metadata": {"run_id": "other"}})
    assert status == 409
    assert reply["error"]["code"] == "registration_conflict"


async def test_completion_carries_outcome_and_reward_and_again_is_harmless(gateway: RunningGateway) -> None:
    await gateway.register()
    body = {"reward": 0.5, "outcome": "failed", "reason": "gave up", "channel": "train"}
    assert await gateway.post("/t1/p1/v1/complete_trajectory", body) == (200, {"status": "ok"})
    assert await gateway.post("/t1/p1/v1/complete_trajectory") == (200, {"status": "ok"})
    (completed,) = gateway.completions
    assert (completed.outcome, completed.reason) == ("failed", "gave up")
    (reward,) = gateway.rewards
    assert (reward.value, reward.step_id) == (0.5, None)
    _, state = await get(gateway, "/t1/p1/v1/trajectory")
    assert state["state"] == "completed"  # type: ignore[index]


async def get(gateway: RunningGateway, path: str) -> tuple[int, object]:
    async with gateway.http.get(gateway.url + path) as response:
        return response.status, await response.json()


async def test_a_reward_may_name_a_step_and_come_late(gateway: RunningGateway) -> None:
    await gateway.register()
    await gateway.post("/t1/p1/v1/complete_trajectory")
    body = {"value": -1, "name": "style", "step_id": "s", "version": 2, "extra": {"why": "x"}}
    assert (await gateway.post("/t1/p1/v1/reward", body))[0] == 200
    (event,) = gateway.rewards
    assert (event.value, event.name, event.step_id, event.version) == (-1.0, "style", "s", 2)
    assert event.extra == {"why": "x"}


async def test_submitted_steps_become_steps_rewards_and_the_end(gateway: RunningGateway) -> None:
    common = {"trajectory_uid": "t7", "prompt_uid": "p7", "policy_version": 3}
    first = {**common, "step_index": 0, "prompt_ids": [1, 2], "response_ids": [3]}
    second = {**common, "step_index": 1, "prompt_ids": [1, 2, 3, 4], "response_ids": [5], "is_last": True}
    steps = [
        {**second, "rollout_log_probs": [-0.5], "reward": 1.0, "routed_experts": [[1]]},
        {**first, "rollout_log_probs": [-0.25], "metadata": {"tag": "x"}},
    ]
    assert await gateway.post("/submit_steps?channel=val", {"steps": steps}) == (200, {"accepted": 2})
    (registered,) = gateway.registrations
    assert (registered.channel, registered.registered_by, registered.rollouts) == ("val", "gateway", 4)
    one, two = gateway.steps
    assert one.started_at_ms < two.started_at_ms
    assert (one.response_ids, one.response_logprobs, one.metadata) == ([3], [-0.25], {"tag": "x"})
    assert (two.prompt.base_step_id, two.prompt.keep_tokens) == (one.step_id, 3)
    assert expand(gateway.steps)[two.step_id].ids == [1, 2, 3, 4]
    assert two.request.protocol == "submitted"
    assert two.token_source == "engine"
    assert two.engine.policy_version_start == 3
    assert two.extras["routed_experts"] == [[1]]
    (reward,) = gateway.rewards
    assert (reward.step_id, reward.value) == (two.step_id, 1.0)
    assert len(gateway.completions) == 1


async def test_a_step_handed_in_twice_has_the_same_id(gateway: RunningGateway) -> None:
    step = {"trajectory_uid": "t7", "prompt_uid": "p7", "prompt_ids": [1], "response_ids": [2]}
    for _ in range(2):
        assert (await gateway.post("/submit_steps", {"steps": [step]}))[0] == 200
    assert len(gateway.steps) == 2
    assert len({s.step_id for s in gateway.steps}) == 1
    assert all(s.integrity == ["logprobs_missing"] and not s.trainable for s in gateway.steps)
    assert all(s.prompt.base_step_id is None for s in gateway.steps)


async def test_models_are_the_engines(gateway: RunningGateway) -> None:
    for path in ("/v1/models", "/t1/p1/v1/models"):
        status, listed = await get(gateway, path)
        assert status == 200
        assert listed == {"object": "list", "data": [{"id": "tiny"}]}


async def test_models_are_502_while_the_engine_is_down() -> None:
    async with running_gateway("http://127.0.0.1:9/v1") as gateway:
        status, _ = await get(gateway, "/v1/models")
    assert status == 502


async def test_health_metrics_and_the_documented_routes_are_served(gateway: RunningGateway) -> None:
    assert (await get(gateway, "/health"))[0] == 200
    await gateway.register()
    await gateway.chat()
    async with gateway.http.get(f"{gateway.url}/metrics") as response:
        text = await response.text()
    assert 'agentworld_gateway_calls_total{protocol="chat_completions",status="ok"}' in text
    _, described = await get(gateway, "/openapi.json")
    assert "/{trajectory_id}/{prompt_id}/v1/register_trajectory" in described["paths"]  # type: ignore[index]
    assert "/{trajectory_id}/{prompt_id}/v1/chat/completions" in described["paths"]  # type: ignore[index]
