"""Clients that hold conversations through the gateway until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.faults import plays
from tests.faults.client import Call, ask, ask_and_leave, fingerprint_of
from tests.faults.plays import ANSWER, Play, told
from tests.faults.wire import KINDS, Kind

_PROMPTS = 8
_CALL_S = 120.0
_PAUSE_S = 0.05
_AWAY_PAUSE_S = 0.3
"""While nobody listens."""
_REFUSED_PAUSE_S = 0.3


@dataclass
class Load:
    """What the clients do, and what they have seen. Each client keeps to one kind of call.

    Half of the calls ask for one of `faults`, the others for an answer.
    """

    row: str
    url: Callable[[], str]
    clients: int
    rng: random.Random
    faults: Sequence[Play] = ()
    turns: int = 5
    """Of a conversation."""
    engine_began: Callable[[str], Awaitable[None]] | None = None
    calls: list[Call] = field(default_factory=list)
    registered: list[str] = field(default_factory=list)
    """Trajectories whose registration was answered."""
    open_calls: int = 0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The clients work within the block; on leaving it they finish their calls under way."""
        timeout = aiohttp.ClientTimeout(total=_CALL_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            kinds = [KINDS[number % len(KINDS)] for number in range(self.clients)]
            self._tasks = [asyncio.create_task(self._client(http, kind)) for kind in kinds]
            try:
                yield
            finally:
                self._stopping.set()
                await asyncio.gather(*self._tasks)

    def count(self, *outcomes: str, since: int = 0) -> Counter[str]:
        """Calls by kind that ended so; `since`: without the first so many calls."""
        return Counter(str(call.kind) for call in self.calls[since:] if call.outcome in outcomes)

    async def until(self, done: Callable[[], bool], *, what: str, limit_s: float = 120.0) -> None:
        """Wait until `done()`. Raises `TimeoutError` that says what was waited for."""
        try:
            async with asyncio.timeout(limit_s):
                while not done():
                    for task in self._tasks:
                        if task.done():
                            task.result()
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise TimeoutError(f"waited {limit_s:.0f} s in vain for {what}") from None

    async def until_each_kind(self, least: int, *outcomes: str, since: int = 0) -> None:
        """Wait until each kind has so many calls that ended so."""
        await self.until(
            lambda: all(self.count(*outcomes, since=since)[str(kind)] >= least for kind in KINDS),
            what=f"{least} calls of each kind to be {' or '.join(outcomes)}",
        )

    async def _client(self, http: aiohttp.ClientSession, kind: Kind) -> None:
        while not self._stopping.is_set():
            place = await self._register(http)
            history: list[tuple[str, str]] = []
            while place is not None and len(history) < 2 * self.turns and not self._stopping.is_set():
                await self._turn(http, kind, place, history)

    async def _register(self, http: aiohttp.ClientSession) -> tuple[str, str] | None:
        """Trajectory and prompt; registered again and again until that is answered."""
        trajectory_id = f"{self.row}-{uuid.uuid4().hex[:12]}"
        prompt_id = f"{self.row}-p{self.rng.randrange(_PROMPTS)}"
        while not self._stopping.is_set():
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                url = f"{self.url()}/{trajectory_id}/{prompt_id}/v1/register_trajectory"
                async with http.post(url, json={}) as response:
                    await response.read()
                    if response.status == 200:
                        self.registered.append(trajectory_id)
                        return trajectory_id, prompt_id
            await asyncio.sleep(_AWAY_PAUSE_S)
        return None

    async def _turn(
        self, http: aiohttp.ClientSession, kind: Kind, place: tuple[str, str], history: list[tuple[str, str]]
    ) -> None:
        suiting = [play for play in self.faults if play.suits(stream=kind.stream)]
        play = self.rng.choice(suiting) if suiting and self.rng.random() < 0.5 else ANSWER
        mark = uuid.uuid4().hex
        turn = ("user", told(mark, play))
        body = kind.body([*history, turn])
        call = Call(mark, place[0], kind, play, fingerprint_of(body))
        ended = await self._ask(http, f"{self.url()}/{place[0]}/{place[1]}", call, body)
        if ended is None:
            await asyncio.sleep(_AWAY_PAUSE_S)
            return
        self.calls.append(ended)
        if ended.outcome == "answered":
            history += [turn, ("assistant", ended.text)]
        elif ended.outcome == "refused":
            await asyncio.sleep(_REFUSED_PAUSE_S)

    async def _ask(self, http: aiohttp.ClientSession, url: str, call: Call, body: bytes) -> Call | None:
        self.open_calls += 1
        try:
            if call.play is not plays.LINGER:
                return await ask(http, url, call, body)
            if call.kind.stream:
                return await ask(http, url, call, body, leave_after=self.rng.randint(1, 5))
            assert self.engine_began is not None
            return await ask_and_leave(http, url, call, body, self.engine_began(call.mark))
        finally:
            self.open_calls -= 1
