"""An answered call is a captured call, whatever happens to the broker and the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentworld.contract.delta import expand
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.settings import KafkaSettings
from infra.kafka.apache import ApacheKafka
from infra.local.broker import LocalBroker
from infra.local.embedded_broker import EmbeddedBroker
from infra.local.ports import free_port
from tests.support.gateway_process import GatewayProcess, first_seen, steps_in, until_in_log
from tests.unit.gateway.scripted_engine import ScriptedEngine, reply_body, running_engine

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.apache)])
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that the test may stop."""
    kind = EmbeddedBroker if request.param == "embedded" else ApacheKafka
    with kind(tmp_path / "broker", tmp_path / "broker.log") as broker:
        yield broker


def settings_of(broker: LocalBroker) -> KafkaSettings:
    return broker.settings(partitions=4)


async def test_an_answered_call_is_in_the_log_when_the_answer_arrives(
    kafka: KafkaSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    gateway = await GatewayProcess(kafka, engine.url, tmp_path / "spool").start()
    for index in range(4):
        await gateway.register(f"t{index}", f"p{index}")
    answered = await asyncio.gather(
        *(gateway.chat(f"t{i % 4}", f"p{i % 4}") for i in range(20)),
    )
    assert set(answered) == set(await asyncio.to_thread(first_seen, kafka))
    steps = await asyncio.to_thread(steps_in, kafka)
    assert all(step.token_source == "engine" and step.integrity == [] for step in steps)
    for index in range(4):
        mine = [step for step in steps if step.trajectory_id == f"t{index}"]
        assert all(prompt.ids == [1, 2, 3] for prompt in expand(mine).values())
    assert await gateway.stop() == 0


async def test_calls_succeed_while_the_broker_is_stopped_and_follow_in_order(
    own_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path
) -> None:
    kafka = settings_of(own_broker)
    gateway = await GatewayProcess(kafka, engine.url, tmp_path / "spool", ack_timeout_ms=1000).start()
    await gateway.register("t1")
    answered = [await gateway.chat("t1") for _ in range(5)]
    await asyncio.to_thread(own_broker.stop)
    answered += [await gateway.chat("t1") for _ in range(20)]
    status, health = await gateway.get("/health")
    assert status == 200
    assert health["spool_bytes"] > 0
    await gateway.register("t2")
    answered.append(await gateway.chat("t2"))
    await asyncio.to_thread(own_broker.start)
    await gateway.until_broker("up")
    answered += [await gateway.chat("t1") for _ in range(5)]
    assert await until_in_log(kafka, answered) == answered
    assert await gateway.stop() == 0


async def test_what_is_spooled_outlives_a_kill_of_the_gateway(
    own_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path
) -> None:
    kafka = settings_of(own_broker)
    gateway = await GatewayProcess(kafka, engine.url, tmp_path / "spool", ack_timeout_ms=500).start()
    await gateway.register("t1")
    await asyncio.to_thread(own_broker.stop)
    answered = [await gateway.chat("t1") for _ in range(10)]
    calls = [asyncio.create_task(gateway.chat("t1")) for _ in range(20)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await gateway.kill()
    results: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    answered += [result for result in results if isinstance(result, str)]
    await asyncio.to_thread(own_broker.start)
    again = await GatewayProcess(kafka, engine.url, tmp_path / "spool").start()
    await until_in_log(kafka, answered)
    assert await again.stop() == 0


async def test_the_acknowledged_tail_comes_back_after_a_crash_of_the_embedded_broker(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path / "broker", tmp_path / "broker.log") as broker:
        kafka = settings_of(broker)
        gateway = await GatewayProcess(kafka, engine.url, tmp_path / "spool", spool_keep_ms=5000).start()
        await gateway.register("t1")
        answered = [await gateway.chat("t1") for _ in range(30)]
        for _ in range(2):
            await asyncio.to_thread(broker.kill)
            answered += [await gateway.chat("t1") for _ in range(10)]
            await asyncio.to_thread(broker.start)
            # As the local stack does: topics made in the broker's last second are gone too.
            await asyncio.to_thread(ensure_topics, kafka)
            await gateway.until_broker("up")
            answered += [await gateway.chat("t1") for _ in range(10)]
        await until_in_log(kafka, answered)
        assert await gateway.stop() == 0


async def test_without_a_broker_the_spool_takes_calls_until_it_is_full(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    kafka = KafkaSettings(bootstrap=f"127.0.0.1:{free_port()}", partitions=4)
    gateway = await GatewayProcess(
        kafka, engine.url, tmp_path / "spool", ack_timeout_ms=100, spool_max_bytes=20_000
    ).start()
    await gateway.register("t1")
    await gateway.chat("t1")
    for _ in range(40):
        status, reply = await gateway.post(
            "/t1/p1/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user"}]}
        )
        if status != 200:
            break
    assert status == 503
    assert "AGENTWORLD_GATEWAY_SPOOL_MAX_BYTES" in reply["error"]["message"]
    await gateway.post("/t9/p1/v1/register_trajectory", {"metadata": {"filler": "x" * 4000}})
    status, health = await gateway.get("/health")
    assert status == 503
    assert "full" in health["status"]
    assert await gateway.stop() == 0


async def test_a_stop_finishes_the_calls_under_way(
    embedded_kafka: KafkaSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    asked, let = asyncio.Event(), asyncio.Event()

    async def script(_: web.Request, __: dict[str, Any]) -> web.Response:
        asked.set()
        await let.wait()
        return web.json_response(reply_body())

    gateway = await GatewayProcess(embedded_kafka, engine.url, tmp_path / "spool").start()
    await gateway.register("t1")
    engine.script = script
    call = asyncio.create_task(gateway.chat("t1"))
    await asked.wait()
    gateway.terminate()
    await asyncio.sleep(0.5)
    let.set()
    step_id = await call
    assert await gateway.stop() == 0
    assert step_id in await asyncio.to_thread(first_seen, embedded_kafka)
