"""What Prometheus is told of engines, and which answers count against them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.gateway.harness import HI, RunningGateway
from tests.unit.gateway.upstreams.pool_engines import engines, pool, published, status
from tests.unit.gateway.upstreams.test_gateway_with_pools import gateway_over

BODY = {**HI, "model": "policy"}


async def metric(gateway: RunningGateway, name: str, **labels: str) -> float | None:
    """A sample of the gateway's metrics; None where there is none."""
    async with gateway.http.get(f"{gateway.url}/metrics") as response:
        text = await response.text()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"agentworld_{name}" and labels.items() <= sample.labels.items():
                return float(sample.value)
    return None


async def test_retries_refusals_and_failures_are_counted_by_engine(tmp_path: Path) -> None:
    async with engines("metric-a", "metric-b") as (a, b):
        a.answers = status(503)
        settings = {"breaker_failures": 1, "retries": 2, "breaker_open_ms": 60_000}
        both = pool("policy", a, b)
        async with gateway_over(tmp_path, both, upstreams=settings) as gateway:
            assert (await gateway.chat(BODY))[0] == 200
            assert len(a.asked) == 1, "trajectory t1 is not this engine's: give the engines other names"
            assert await metric(gateway, "gateway_engine_retries_total", engine="metric-a") == 1
            counted = "gateway_engine_calls_total"
            assert await metric(gateway, counted, engine="metric-a", outcome="failed") == 1
            assert await metric(gateway, counted, engine="metric-b", outcome="answered") == len(b.asked)
            assert await metric(gateway, "gateway_engine_breaker", engine="metric-a") == 1
            assert await metric(gateway, "gateway_engine_breaker", engine="metric-b") == 0
            assert await metric(gateway, "gateway_engine_well", engine="metric-b") == 1
            b.answers = status(400)
            assert (await gateway.chat(BODY))[0] == 400
            assert await metric(gateway, counted, engine="metric-b", outcome="refused") == 1
            assert await metric(gateway, "gateway_engine_open_calls", engine="metric-b") == 0


async def test_health_and_holding_show(tmp_path: Path) -> None:
    async with engines("metric-c") as (c,):
        c.well = False
        one = pool("policy", c, engine={"update_weights": True})
        async with gateway_over(tmp_path, one, upstreams={"health_interval_ms": 10}) as gateway:
            async with asyncio.timeout(20):
                while await metric(gateway, "gateway_engine_well", engine="metric-c") != 0:
                    await asyncio.sleep(0.02)
            c.may_load.clear()
            gateway.policies.take(published(7))
            await c.loading.wait()
            assert await metric(gateway, "gateway_engine_held", engine="metric-c") == 1
            c.may_load.set()
            async with asyncio.timeout(20):
                while await metric(gateway, "gateway_engine_held", engine="metric-c") != 0:
                    await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("payload", "state"),
    [(b'{"choices": [], "x": "%s"}' % (b"x" * 600), "closed"), (b"<html>", "open")],
)
async def test_a_too_large_answer_does_not_count_against_the_engine_and_a_garbled_one_does(
    tmp_path: Path, payload: bytes, state: str
) -> None:
    async with engines("metric-d") as (d,):

        async def answering(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            return web.Response(body=payload, content_type="application/json")

        d.answers = answering
        settings = {"breaker_failures": 2, "breaker_open_ms": 60_000}
        async with gateway_over(
            tmp_path, pool("policy", d), upstreams=settings, max_answer_bytes=500
        ) as gateway:
            for _ in range(2):
                assert (await gateway.chat(BODY))[0] == 502
            level = {"closed": 0, "open": 1}[state]
            assert await metric(gateway, "gateway_engine_breaker", engine="metric-d") == level
