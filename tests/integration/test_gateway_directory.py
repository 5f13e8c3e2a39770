"""Gateways on the same topics know the same trajectories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentworld.contract.events import DirectoryUpdated, PolicyPublished
from agentworld.contract.ids import new_id
from agentworld.contract.topics import POLICY_VERSIONS, TRAJECTORY_DIRECTORY
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.settings import KafkaSettings
from gateway.directory import DirectoryAway
from gateway.follower import FollowedDirectory
from gateway.policies import PolicyVersions
from infra.local.embedded_broker import EmbeddedBroker
from tests.support.gateway_process import HI, GatewayProcess, steps_in
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
CHAT = "/v1/chat/completions"


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


async def two_gateways(
    kafka: KafkaSettings, engine: ScriptedEngine, folder: Path
) -> tuple[GatewayProcess, GatewayProcess]:
    one, two = await asyncio.gather(
        GatewayProcess(kafka, engine.url, folder / "spool", instance="a").start(),
        GatewayProcess(kafka, engine.url, folder / "spool", instance="b").start(),
    )
    for gateway in (one, two):
        async with asyncio.timeout(30):
            while not (await gateway.get("/health"))[1]["directory_followed"]:
                await asyncio.sleep(0.05)
    return one, two


@pytest.mark.parametrize("idle_fetch_ms", [0, 20_000])
async def test_a_trajectory_registered_at_one_gateway_is_known_to_the_other_at_once(
    kafka: KafkaSettings, engine: ScriptedEngine, tmp_path: Path, idle_fetch_ms: int
) -> None:
    kafka = kafka.model_copy(update={"idle_fetch_ms": idle_fetch_ms})
    one, two = await two_gateways(kafka, engine, tmp_path)
    for index in range(20):
        first, second = (one, two) if index % 2 else (two, one)
        await first.register(f"t{index}")
        await second.chat(f"t{index}")
        status, reply = await second.post(f"/t{index}/other{CHAT}", HI)
        assert (status, reply["error"]["code"]) == (409, "prompt_mismatch")
    status, reply = await two.post(f"/never/p1{CHAT}", HI)
    assert (status, reply["error"]["code"]) == (404, "unknown_trajectory")
    assert len(await asyncio.to_thread(steps_in, kafka)) == 20
    assert list(await asyncio.gather(one.stop(), two.stop())) == [0, 0]


async def test_completion_and_seal_reach_the_other_gateway(
    kafka: KafkaSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    one, two = await two_gateways(kafka, engine, tmp_path)
    publisher = KafkaPublisher(kafka, client_id="test")
    for trajectory in ("t1", "t2"):
        await one.register(trajectory)
        await two.chat(trajectory)
    await one.post("/t1/p1/v1/complete_trajectory")
    sealed = DirectoryUpdated(
        event_id=new_id(),
        event_time_ms=1,
        source="test",
        trajectory_id="t2",
        prompt_id="p1",
        run_id="default",
        channel="train",
        policy="default",
        state="sealed",
    )
    await publisher.publish(OutRecord.of(TRAJECTORY_DIRECTORY, sealed))
    for trajectory in ("t1", "t2"):
        async with asyncio.timeout(30):
            while (await two.post(f"/{trajectory}/p1{CHAT}", HI))[0] == 200:
                await asyncio.sleep(0.05)
        status, reply = await two.post(f"/{trajectory}/p1{CHAT}", HI)
        assert (status, reply["error"]["code"]) == (409, "trajectory_completed")
    await publisher.close()
    assert list(await asyncio.gather(one.stop(), two.stop())) == [0, 0]


async def test_a_restarted_gateway_knows_what_was_registered_before(
    kafka: KafkaSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    gateway = await GatewayProcess(kafka, engine.url, tmp_path / "spool").start()
    await gateway.register("t1")
    await gateway.kill()
    again = await GatewayProcess(kafka, engine.url, tmp_path / "spool").start()
    await again.chat("t1")
    assert await again.stop() == 0


async def test_published_policy_versions_stand_in_the_steps(
    embedded_kafka: KafkaSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    gateway = await GatewayProcess(embedded_kafka, engine.url, tmp_path / "spool").start()
    publisher = KafkaPublisher(embedded_kafka, client_id="test")
    event = PolicyPublished(
        event_id=new_id(),
        event_time_ms=1,
        source="test",
        policy="default",
        version=7,
        weights_uri="",
        digest="",
    )
    await publisher.publish(OutRecord.of(POLICY_VERSIONS, event))
    await publisher.close()
    await gateway.register("t1")
    async with asyncio.timeout(30):
        while True:
            await gateway.chat("t1")
            last = (await asyncio.to_thread(steps_in, embedded_kafka))[-1]
            if last.engine.policy_version_start == last.engine.policy_version_end == 7:
                break
    assert await gateway.stop() == 0


async def test_nobody_can_say_that_a_trajectory_is_unknown_while_the_spool_may_hold_its_registration(
    embedded_kafka: KafkaSettings,
) -> None:
    await asyncio.to_thread(ensure_topics, embedded_kafka)
    drained = False
    directory = FollowedDirectory(
        embedded_kafka, PolicyVersions(), client_id="test", wait_s=20, caught_up=lambda: drained
    )
    directory.start()
    async with asyncio.timeout(30):
        while not directory.following:
            await asyncio.sleep(0.05)
    with pytest.raises(DirectoryAway, match="spool"):
        await directory.find("t1")
    drained = True
    assert await directory.find("t1") is None
    await directory.stop()


async def test_the_directory_is_followed_again_after_the_broker_was_away(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path / "broker", tmp_path / "broker.log") as broker:
        kafka = broker.settings(partitions=4)
        one, two = await two_gateways(kafka, engine, tmp_path)
        await one.register("before")
        await asyncio.to_thread(broker.stop)
        await one.register("meanwhile")
        await asyncio.to_thread(broker.start)
        for gateway in (one, two):
            async with asyncio.timeout(60):
                while not (await gateway.get("/health"))[1]["directory_followed"]:
                    await asyncio.sleep(0.05)
        for gateway in (one, two):
            await gateway.until_broker("up")
        await one.register("after")
        for trajectory in ("before", "meanwhile", "after"):
            await two.chat(trajectory)
        async with asyncio.timeout(60):  # what a gateway spooled meanwhile may drain a little later
            while (await two.post(f"/never/p1{CHAT}", HI))[0] != 404:
                await asyncio.sleep(0.05)
        assert list(await asyncio.gather(one.stop(), two.stop())) == [0, 0]
