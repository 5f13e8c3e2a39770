"""The real gateway process over TCP, the real broker behind it: no delta waits for a later token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentworld.platform.settings import KafkaSettings
from tests.support.gateway_process import GatewayProcess, steps_in
from tests.unit.gateway.streams.client_streams import STREAMED
from tests.unit.gateway.streams.lockstep import PIECES, check_lockstep, in_lockstep

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


async def test_each_delta_is_with_the_client_before_the_engine_samples_the_next_token(
    embedded_kafka: KafkaSettings, tmp_path: Path
) -> None:
    cases = [(path, kind) for path in STREAMED for kind in PIECES if path != "completions" or kind == "text"]
    async with in_lockstep("vllm") as engine:
        gateway = await GatewayProcess(embedded_kafka, engine.url, tmp_path / "spool").start()
        assert gateway.http is not None
        await gateway.register("t1")
        for path, kind in cases:
            await check_lockstep(gateway.http, f"{gateway.url}/t1/p1", path, engine, kind)
        assert await gateway.stop() == 0
    steps = await asyncio.to_thread(steps_in, embedded_kafka)
    assert len(steps) == len(cases)
    assert all((step.status, step.token_source, step.integrity) == ("ok", "engine", []) for step in steps)
