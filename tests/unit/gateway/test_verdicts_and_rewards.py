"""Failing a trajectory, verdicts on it or its group, and computed rewards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentworld.contract.errors import ContractViolation
from agentworld.contract.events import VerdictGiven
from agentworld.contract.ids import group_id
from gateway.directory import moved
from gateway.rewarding import load_reward_function
from tests.unit.gateway.harness import RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine

QUESTION = {
    "prompt_ids": [1, 2],
    "response_ids": [3, 4],
    "extra_fields": {"k": 1},
    "dataset_fields": {"gt": 7},
}


def scored(**fields: Any) -> dict[str, Any]:
    return {
        "reward_score": len(fields["response_ids"]),
        "reward_extra_info": {"gt": fields["dataset_fields"]["gt"]},
    }


async def plain(**fields: Any) -> float:
    return fields["num_turns"] / 4


def broken(**fields: Any) -> Any:
    return {"score": 1}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url) as gateway:
        await gateway.register(run_id="r", round=2)
        yield gateway


def verdicts(gateway: RunningGateway) -> list[VerdictGiven]:
    return [event for event in gateway.events if isinstance(event, VerdictGiven)]


async def test_a_failed_trajectory_is_completed_with_its_reason(gateway: RunningGateway) -> None:
    status, _ = await gateway.post("/t1/p1/v1/fail_trajectory", {"reason": "the sandbox died"})
    assert status == 200
    (completed,) = gateway.completions
    assert (completed.outcome, completed.reason) == ("errored", "the sandbox died")
    assert (await gateway.post("/t1/p1/v1/fail_trajectory"))[0] == 200
    assert len(gateway.completions) == 1
    assert (await gateway.chat())[0] == 409


async def test_a_verdict_is_on_a_trajectory_or_on_its_group(gateway: RunningGateway) -> None:
    await gateway.post("/t1/p1/v1/complete_trajectory")
    body = {"decision": "reject", "round": 2, "given_by": "ann", "reason": "cheats", "value": {"rule": 1}}
    group = group_id("r", "train", 2, "p1")
    assert await gateway.post("/t1/p1/v1/verdict", body) == (200, {"status": "ok", "group_id": group})
    await gateway.post("/t1/p1/v1/verdict", {"decision": "accept", "whole_group": True, "group_id": "g"})
    one, whole = verdicts(gateway)
    assert (one.decision, one.trajectory_id, one.group_id) == ("reject", "t1", group)
    assert (one.given_by, one.given_by_kind, one.reason, one.value) == (
        "ann",
        "person",
        "cheats",
        {"rule": 1},
    )
    assert (whole.decision, whole.trajectory_id, whole.group_id) == ("accept", None, "g")


async def test_rewards_and_verdicts_are_taken_long_after_the_seal(gateway: RunningGateway) -> None:
    entry = gateway.directory.get("t1")
    assert entry is not None
    gateway.directory.put(moved(entry, "sealed"))
    assert (await gateway.post("/t1/p1/v1/reward", {"value": 1}))[0] == 200
    assert (await gateway.post("/t1/p1/v1/verdict", {"decision": "hold"}))[0] == 200
    assert (len(gateway.rewards), len(verdicts(gateway))) == (1, 1)


@pytest.mark.parametrize("body", [{}, {"decision": "maybe"}, {"decision": "hold", "round": -1}])
async def test_what_is_no_verdict_is_422(gateway: RunningGateway, body: Any) -> None:
    status, reply = await gateway.post("/t1/p1/v1/verdict", body)
    assert status == 422
    assert reply["error"]["param"]
    assert (await gateway.post("/other/p1/v1/verdict", {"decision": "hold"}))[0] == 404


async def test_without_a_reward_function_501_says_what_to_do(gateway: RunningGateway) -> None:
    status, reply = await gateway.post("/compute_reward", QUESTION)
    assert status == 501
    assert "AGENTWORLD_GATEWAY_REWARD_FUNCTION" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("scored", {"reward_score": 2.0, "reward_extra_info": {"gt": 7}}),
        ("plain", {"reward_score": 0.5, "reward_extra_info": {}}),
    ],
)
async def test_the_configured_function_computes_the_reward(
    engine: ScriptedEngine, name: str, answer: Any
) -> None:
    async with running_gateway(engine.url, reward_function=f"{__name__}:{name}") as gateway:
        assert await gateway.post("/compute_reward", QUESTION) == (200, answer)


async def test_a_function_that_fails_is_502_and_says_so(engine: ScriptedEngine) -> None:
    async with running_gateway(engine.url, reward_function=f"{__name__}:broken") as gateway:
        status, reply = await gateway.post("/compute_reward", QUESTION)
    assert status == 502
    assert reply["error"]["code"] == "reward_function_failed"


@pytest.mark.parametrize("path", ["nowhere.to.be.found:f", "json:nothing", "json", "json:__doc__"])
def test_a_function_that_is_not_there_stops_the_gateway_at_start(path: str) -> None:
    with pytest.raises(ContractViolation, match="REWARD_FUNCTION"):
        load_reward_function(path)


ODD: list[Any] = ["\ud800", 10**30, -(10**30), 1e308, [[[[[]]]]], {"\ud800": None}, {"a": "\udfff"}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/t1/p1/v1/register_trajectory", lambda odd: {"metadata": {"x": odd}}),
        ("/t9/p1/v1/register_trajectory", lambda odd: {"metadata": {"x": odd}}),
        ("/t1/p1/v1/reward", lambda odd: {"value": 1, "extra": {"x": odd}, "given_by": str(odd)[:9]}),
        ("/t1/p1/v1/reward", lambda odd: {"value": odd}),
        ("/t1/p1/v1/verdict", lambda odd: {"decision": "hold", "value": {"x": odd}}),
        ("/t1/p1/v1/fail_trajectory", lambda odd: {"reason": odd}),
        ("/t1/p1/v1/complete_trajectory", lambda odd: {"outcome": odd}),
        ("/compute_reward", lambda odd: {**QUESTION, "extra_fields": {"x": odd}}),
        (
            "/submit_steps",
            lambda odd: {
                "steps": [
                    {
                        "trajectory_uid": "t1",
                        "prompt_uid": "p1",
                        "prompt_ids": [1],
                        "response_ids": [2],
                        "metadata": {"x": odd},
                        "multi_modal_data": odd,
                    }
                ]
            },
        ),
    ],
)
async def test_odd_values_are_stored_or_refused_and_never_500(
    gateway: RunningGateway, path: str, body: Any, odd: Any
) -> None:
    status, reply = await gateway.post(path, body(odd))
    assert status in {200, 400, 409, 422, 501}, reply
