"""What recorded clients do, captured by the gateway and classified as a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentworld.contract.events import StepCaptured
from stream_processors.trajectories.tree import placed_steps, trained_branch
from tests.unit.gateway.harness import running_gateway
from tests.unit.gateway.test_recorded_conversations import RECORDED, requests_of, turns_of
from tests.unit.gateway.token_engine import sampling

EXPECTED: dict[str, dict[int, str]] = {
    "claude-tui": {0: "side_call", 1: "root", 2: "extends"},
    "claude-compact": {0: "root", 1: "extends", 2: "extends", 4: "rewritten", 5: "extends"},
    "claude-sub": {0: "root", 1: "sub_agent", 2: "sub_agent"},
    "codex-clean": {0: "root", 1: "extends"},
    "codex-compact": {0: "root", 1: "extends", 4: "rewritten", 5: "extends"},
    "codex-sub": {0: "root", 1: "sub_agent"},
    "openclaw-basic-openai-responses": {0: "root", 1: "extends", 2: "extends"},
    "openclaw-basic-openai-completions": {0: "root", 1: "rewritten", 2: "rewritten"},
    "openclaw-compact2": {0: "root", 1: "side_call"},
    "opencode-basic": {0: "side_call", 1: "root"},
    "opencode-sub": {0: "side_call", 1: "root", 3: "sub_agent"},
}
"""By place in the order of requests: titles and summaries, agents of their own, new histories."""


async def captured(recording: Path) -> list[StepCaptured]:
    requests = requests_of(recording)
    async with (
        sampling(*turns_of(requests)) as engine,
        running_gateway(engine.url, restore=True) as gateway,
    ):
        await gateway.register()
        for request in requests:
            async with gateway.http.post(
                f"{gateway.url}/t1/p1/v1/{request.path}", data=request.body
            ) as reply:
                assert reply.status == 200, await reply.read()
        return gateway.steps


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
async def test_a_recorded_conversation_has_the_expected_tree(recording: Path) -> None:
    steps = await captured(recording)
    placed = placed_steps(steps)
    by_id = {p.step.step_id: p for p in placed}
    asked = [by_id[step.step_id] for step in steps]
    wanted = EXPECTED.get(recording.stem, {0: "root"})
    assert {place: asked[place].relation for place in wanted} == wanted
    assert len(placed) == len(steps)
    assert placed_steps(steps[::-1]) == placed
    trained = trained_branch(placed)
    assert trained is not None
    assert not by_id[trained.tip_step_id].superseded
