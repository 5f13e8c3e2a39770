"""Clients that run many small rollouts through several gateways and remember what they were answered."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from agentworld.contract.ids import group_id
from tests.chaos.expected import Expected, Rollout
from tests.faults.plays import ANSWER, told

_CALL_S = 60.0
_PAUSE_S = 0.25
_THOUGHT_S = 0.3
"""Most that an agent does between two calls."""
_NEVER_COMPLETED = 0.04
_FAILED = 0.15
STEP_ID = "x-agentworld-step-id"


def planned(run_id: str, number: int, rng: random.Random) -> list[Rollout]:
    """The rollouts of one group, two to four of them."""
    prompt_id = f"{run_id}-p{number}"
    rollouts = rng.choice([2, 2, 3, 4])
    return [
        Rollout(
            trajectory_id=f"{prompt_id}-{index}",
            prompt_id=prompt_id,
            run_id=run_id,
            group_id=group_id(run_id, "train", 0, prompt_id),
            rollouts=rollouts,
        )
        for index in range(rollouts)
    ]


class Sealed(Exception):
    """No gateway answered for so long that the rollout was given up: no more calls are taken."""


@dataclass
class Load:
    """Starts groups while something is done to the stack; each call goes to a gateway drawn by chance."""

    expected: Expected
    least_groups: int
    going_on: Callable[[], bool]
    """Whether the fault is not over: then groups go on beyond `least_groups`."""
    urls: Callable[[], list[str]]
    seed: str
    """Each rollout draws from its own generator, so that what it does depends on nobody's timing."""
    clients: int
    tries: int = 0
    """Requests that were not answered, and made again."""
    _queue: list[Rollout] = field(default_factory=list)
    _groups: int = 0

    async def run(self) -> None:
        """Return when every rollout is over."""
        timeout = aiohttp.ClientTimeout(total=_CALL_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
            await asyncio.gather(*(self._client(http) for _ in range(self.clients)))

    async def _client(self, http: aiohttp.ClientSession) -> None:
        while (rollout := self._next()) is not None:
            await self._rollout(http, rollout)

    def _next(self) -> Rollout | None:
        if not self._queue and (self._groups < self.least_groups or self.going_on()):
            self._queue = planned(self.expected.run_id, self._groups, self._chance(f"group {self._groups}"))
            self.expected.rollouts += self._queue
            self._groups += 1
        return self._queue.pop(0) if self._queue else None

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    async def _rollout(self, http: aiohttp.ClientSession, rollout: Rollout) -> None:
        with contextlib.suppress(Sealed):
            await self._work(http, rollout)

    async def _work(self, http: aiohttp.ClientSession, rollout: Rollout) -> None:
        chance = self._chance(rollout.trajectory_id)
        gateways = self._chance(f"gateways of {rollout.trajectory_id}")
        fate = chance.random()
        metadata = {"run_id": rollout.run_id, "n_rollouts": rollout.rollouts}
        await self._until_answered(http, rollout, gateways, "register_trajectory", {"metadata": metadata})
        rollout.registered = True
        history: list[dict[str, str]] = []
        for turn in range(chance.choice([0, 1, 2, 3, 4, 5])):
            history.append({"role": "user", "content": told(f"{rollout.trajectory_id}-{turn}", ANSWER)})
            body = {"model": "demo", "messages": history, "stream": False, "max_tokens": 32}
            text, step_id = await self._until_answered(http, rollout, gateways, "chat/completions", body)
            rollout.answered.append(step_id)
            await asyncio.sleep(chance.uniform(0, _THOUGHT_S))
            history.append({"role": "assistant", "content": text})
        if fate >= _NEVER_COMPLETED:
            outcome = "failed" if fate < _FAILED else "succeeded"
            reward = round(chance.random(), 3)
            body = {"channel": "train", "outcome": outcome, "reward": reward}
            await self._until_answered(http, rollout, gateways, "complete_trajectory", body)
            rollout.completed = True

    async def _until_answered(
        self,
        http: aiohttp.ClientSession,
        rollout: Rollout,
        gateways: random.Random,
        path: str,
        body: dict[str, object],
    ) -> tuple[str, str]:
        """Text and step id of the answer; asked again, maybe elsewhere, until there is one."""
        while True:
            url = f"{gateways.choice(self.urls())}/{rollout.trajectory_id}/{rollout.prompt_id}/v1/{path}"
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.post(url, json=body) as response:
                    if response.status == 200:
                        answer = await response.json()
                        text = answer["choices"][0]["message"]["content"] if "choices" in answer else ""
                        return text, response.headers.get(STEP_ID, "")
                    said = await response.text()
                    if response.status == 409 and "is sealed" in said:
                        raise Sealed
                    if response.status in {400, 409, 413, 422}:
                        raise AssertionError(f"{url}: {response.status} {said}")
            self.tries += 1
            await asyncio.sleep(_PAUSE_S)
