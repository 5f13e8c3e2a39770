"""Engine, clients and judge without a broker: every fault of the engine in every kind of call."""

import random

import pytest
from aiohttp import web

from tests.faults import plays
from tests.faults.engine import Engine
from tests.faults.engine_log import Entry
from tests.faults.judgement import judge
from tests.faults.load import Load
from tests.faults.plays import PLAYS
from tests.faults.stack import EngineWatch
from tests.faults.wire import KINDS
from tests.support.engine.log import EngineLog, LogReader
from tests.unit.gateway.harness import running_gateway


@pytest.fixture
async def engine(tmp_path):
    """URL of the faulty engine, and its log."""
    path = tmp_path / "engine.jsonl"
    app = Engine(EngineLog(path), token_delay_ms=1).app()
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", EngineWatch(LogReader(path, Entry))
    await runner.cleanup()


@pytest.mark.parametrize(
    "play", [play for play in PLAYS.values() if play is not plays.ANSWER], ids=lambda p: p.name
)
async def test_each_fault_is_told_and_captured_as_it_ended_in_every_kind_of_call(engine, play):
    url, watch = engine
    kinds = {str(kind) for kind in KINDS if play.suits(stream=kind.stream)}
    timeout_ms = 3_000 if play.ends == "timed_out" else 60_000
    async with running_gateway(url, upstream_timeout_ms=timeout_ms) as gateway:
        load = Load(
            "row", lambda: gateway.url, len(KINDS), random.Random(1), [play], engine_began=watch.began
        )
        async with load.running():
            await load.until(
                lambda: (
                    kinds <= set(load.count("failed", "left")) and len(load.count("answered")) == len(KINDS)
                ),
                what="each kind to fail and to be answered",
                limit_s=60,
            )
        noted, open_calls = await watch.settled()
    row = judge(load.calls, load.registered, noted, gateway.events)
    harmed = [call for call in load.calls if call.outcome in {"failed", "left"}]
    assert {call.play for call in harmed} == {play}
    assert row.problems == []
    assert (open_calls, row.lost, row.duplicated, row.inexact, row.broken) == (0, 0, 0, 0, 0)
    assert row.failed == row.failed_captured == len(harmed)
    if play is plays.LINGER:
        assert row.left == row.engine_cancelled == len(harmed)
