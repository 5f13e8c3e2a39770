"""A publication on the topic reaches the engines of a gateway that runs as a process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agentworld.contract.topics import POLICY_VERSIONS
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.settings import KafkaSettings
from tests.support.gateway_process import GatewayProcess, steps_in
from tests.unit.gateway.upstreams.pool_engines import QUIET, engines, pool, published

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


async def test_published_weights_are_loaded_and_a_restarted_gateway_leaves_them_alone(
    embedded_kafka: KafkaSettings, tmp_path: Path
) -> None:
    async with engines("a", "judge") as (a, judge):
        pools = [pool("default", a, engine={"update_weights": True}), pool("judge", judge, trainable=False)]
        file = tmp_path / "upstreams.json"
        file.write_text(json.dumps({**QUIET, "pools": pools}))
        spool = tmp_path / "spool"
        gateway = await GatewayProcess(embedded_kafka, a.url, spool, upstreams_file=file).start()
        publisher = KafkaPublisher(embedded_kafka, client_id="test")
        for version in (1, 2):
            await publisher.publish(OutRecord.of(POLICY_VERSIONS, published(version, policy="default")))
        await until_serving(gateway, 2)
        await gateway.register("t1")
        for model in ("default", "judge"):
            assert (await gateway.post("/t1/p1/v1/chat/completions", chat(model)))[0] == 200
        assert await gateway.stop() == 0

        loaded = len(a.controls)
        again = await GatewayProcess(embedded_kafka, a.url, spool, upstreams_file=file).start()
        await until_serving(again, 2)
        assert await again.stop() == 0
        asked = [path for path, _ in a.controls[loaded:]]
    sampled, judged = await asyncio.to_thread(steps_in, embedded_kafka)
    assert (sampled.engine.policy_version_start, sampled.engine.policy_version_end) == (2, 2)
    assert (judged.engine.policy, judged.engine.policy_version_end, judged.trainable) == (
        "judge",
        None,
        False,
    )
    assert not [path for path in asked if path.startswith("/pause")]
    assert not judge.controls


def chat(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}]}


async def until_serving(gateway: GatewayProcess, version: int) -> None:
    """Wait until `/health` says so."""
    async with asyncio.timeout(60):
        while (await gateway.get("/health"))[1]["engines"]["a"].get("policy_version") != version:
            await asyncio.sleep(0.05)
