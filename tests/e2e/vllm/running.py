"""All calls through a gateway process over one engine, against what the engine itself said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agentworld.contract.delta import expand
from agentworld.platform.settings import KafkaSettings
from tests.e2e.vllm.calls import CASES, Case, Row, call, judge
from tests.e2e.vllm.tap import tapped
from tests.support.gateway_process import GatewayProcess, steps_in

_IGNORE_EOS = {"ignore_eos": True}
"""A model of random weights may end at once, and then there would be no first delta."""


async def run_all(
    engine_url: str, kafka: KafkaSettings, folder: Path, cases: Sequence[Case] = CASES
) -> list[Row]:
    """One row per case."""
    rows = []
    async with tapped(engine_url) as tap:
        gateway = await GatewayProcess(kafka, tap.url, folder / "spool").start()
        assert gateway.http is not None
        try:
            for number, case in enumerate(cases):
                trajectory = f"t{number}"
                await gateway.register(trajectory)
                tap.sampling = {} if case.what == "tool" else _IGNORE_EOS
                rows.append(await call(gateway.http, f"{gateway.url}/{trajectory}/p1", case, tap))
        finally:
            code = await gateway.stop()
        assert code == 0
        steps = await asyncio.to_thread(steps_in, kafka)
        for number, row in enumerate(rows):
            mine = [step for step in steps if step.trajectory_id == f"t{number}"]
            told = next((tap.answers[s.engine.request_id] for s in mine if s.engine.request_id), None)
            if told is not None and not row.problems:
                await judge(row, told, mine, expand(mine), tap)
    return rows
