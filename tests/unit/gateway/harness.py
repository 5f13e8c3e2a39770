"""A gateway on a real socket over edges a test can see through."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvicorn

from agentworld.contract.codec import decode
from agentworld.contract.events import RewardAssigned, StepCaptured, TrajectoryCompleted, TrajectoryRegistered
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.log import Publisher
from agentworld.platform.memory import InMemoryLog
from gateway.app import create_app
from gateway.directory import Directory, LocalDirectory
from gateway.http_server import bounded_http
from gateway.policies import PolicyVersions
from gateway.settings import GatewaySettings
from gateway.upstream import Upstream

HI = {"messages": [{"role": "user", "content": "hi"}]}


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class RunningGateway:
    url: str
    http: aiohttp.ClientSession
    log: InMemoryLog
    directory: Directory
    policies: PolicyVersions

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        """Status, and the reply as JSON."""
        async with self.http.post(self.url + path, json=body, **options) as response:
            return response.status, await response.json(content_type=None)

    async def register(self, trajectory: str = "t1", prompt: str = "p1", **metadata: Any) -> None:
        status, reply = await self.post(
            f"/{trajectory}/{prompt}/v1/register_trajectory", {"metadata": metadata}
        )
        assert status == 200, reply

    async def chat(
        self, body: dict[str, Any] | None = None, *, at: str = "/t1/p1", **options: Any
    ) -> tuple[int, Any]:
        return await self.post(f"{at}/v1/chat/completions", HI if body is None else body, **options)

    async def chat_text(self, body: dict[str, Any], *, at: str = "/t1/p1") -> tuple[int, str]:
        """Status and the whole text of a streamed reply."""
        async with self.http.post(f"{self.url}{at}/v1/chat/completions", json=body) as response:
            return response.status, await response.text()

    @property
    def events(self) -> list[Any]:
        return [decode(TRAJECTORY_EVENTS, r.value) for r in self.log.records(TRAJECTORY_EVENTS.name)]

    @property
    def steps(self) -> list[StepCaptured]:
        return [e for e in self.events if isinstance(e, StepCaptured)]

    @property
    def rewards(self) -> list[RewardAssigned]:
        return [e for e in self.events if isinstance(e, RewardAssigned)]

    @property
    def completions(self) -> list[TrajectoryCompleted]:
        return [e for e in self.events if isinstance(e, TrajectoryCompleted)]

    @property
    def registrations(self) -> list[TrajectoryRegistered]:
        return [e for e in self.events if isinstance(e, TrajectoryRegistered)]

    async def until_steps(self, count: int) -> list[StepCaptured]:
        """Wait until that many steps are in the log."""
        async with asyncio.timeout(20):
            while len(self.steps) < count:
                await asyncio.sleep(0.01)
        return self.steps


@contextlib.asynccontextmanager
async def running_gateway(
    engine_url: str,
    *,
    publisher: Publisher | None = None,
    directory: Directory | None = None,
    server: dict[str, Any] | None = None,
    check_room: Callable[[], None] = lambda: None,
    **settings: Any,
) -> AsyncIterator[RunningGateway]:
    """A gateway over an in-memory log and the engine at `engine_url`. `server`: options of uvicorn."""
    log = InMemoryLog()
    chosen = GatewaySettings(upstream_url=engine_url, **settings)
    upstream = Upstream(chosen)
    directory = LocalDirectory() if directory is None else directory
    policies = PolicyVersions()
    policies.tell(upstream.published)
    app = create_app(
        chosen,
        publisher=publisher or log.publisher(),
        directory=directory,
        upstream=upstream,
        policies=policies,
        check_room=check_room,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    options = {
        "http": bounded_http(chosen.max_header_bytes),
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
    }
    running = _Server(uvicorn.Config(app, **options | (server or {})))
    serving = asyncio.create_task(running.serve(sockets=[listener]))
    while not running.started:
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with aiohttp.ClientSession() as http:
            yield RunningGateway(url, http, log, directory, policies)
    finally:
        running.should_exit = True
        await serving
        await upstream.close()
