"""Conversations whose later prompts are given to vLLM as the ids that it sampled (`continue_tokens`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentworld.contract.delta import expand
from agentworld.platform.settings import KafkaSettings
from tests.e2e.vllm.tap import tapped
from tests.support.gateway_process import GatewayProcess, steps_in

CONVERSATIONS, TURNS = 4, 3
_END = "<|im_end|>"
_BIAS = 4.5
"""Towards the end of a turn: random weights seldom end one, and what is cut cannot be continued."""


@dataclass(frozen=True)
class Later:
    """A later turn of a conversation."""

    continued: bool
    """The step says so."""
    exact: bool
    """Its prompt, in vLLM's own word, begins with all of the step before."""
    drifted: bool
    declined: str

    @property
    def honest(self) -> bool:
        return self.exact if self.continued else bool(self.declined)


async def run_conversations(engine_url: str, kafka: KafkaSettings, folder: Path) -> list[Later]:
    """Every turn but the first of each."""
    async with tapped(engine_url) as tap:
        asked = {"prompt": _END, "add_special_tokens": False}
        end = (await tap.ask("POST", "/tokenize", asked))["tokens"]
        tap.sampling = {"logit_bias": {str(end[0]): _BIAS}} if len(end) == 1 else {}
        spool = folder / "spool-of-turns"
        gateway = await GatewayProcess(kafka, tap.url, spool, upstream_continue_tokens=True).start()
        try:
            for number in range(CONVERSATIONS):
                await _converse(gateway, f"conversation{number}")
        finally:
            code = await gateway.stop()
        assert code == 0
    steps = await asyncio.to_thread(steps_in, kafka)
    found = []
    for number in range(CONVERSATIONS):
        mine = [step for step in steps if step.trajectory_id == f"conversation{number}"]
        assert len(mine) == TURNS
        prompts = expand(mine)
        for before, after in pairwise(mine):
            leaf = [*prompts[before.step_id].ids, *before.response_ids]
            said = after.continuation
            assert said is not None
            found.append(
                Later(
                    continued=said.step_id == before.step_id,
                    exact=list(prompts[after.step_id].ids)[: len(leaf)] == leaf,
                    drifted=said.drifted,
                    declined=said.declined,
                )
            )
    return found


async def _converse(gateway: GatewayProcess, trajectory: str) -> None:
    await gateway.register(trajectory)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Add one and two."}]
    for turn in range(TURNS):
        body = {"model": "default", "messages": messages, "max_tokens": 256}
        status, reply = await gateway.post(f"/{trajectory}/p1/v1/chat/completions", body)
        assert status == 200, reply
        said = {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}
        messages += [said, {"role": "user", "content": f"And {turn}?"}]
