"""Real HTTP engines on loopback that can be made to fail, hang, and load weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from agentworld.contract.events import PolicyPublished
from gateway.canonical import ChatCall
from gateway.dialects import ChatCompletions
from gateway.engine import Answer, EngineObject
from gateway.upstream import Upstream
from gateway.upstream_settings import UpstreamSettings
from tests.support.serving import serving
from tests.unit.gateway.scripted_engine import reply_body

Answering = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class PoolEngine:
    """What it was asked, and how it behaves."""

    name: str
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    controls: list[tuple[str, Any]] = field(default_factory=list)
    answers: Answering | None = None
    well: bool = True
    models: list[str] = field(default_factory=lambda: ["tiny"])
    version: str = "default"
    paused: bool = False
    loading: asyncio.Event = field(default_factory=asyncio.Event)
    may_load: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: dict[str, int] = field(default_factory=dict)
    """How often each control path still answers 500."""

    def __post_init__(self) -> None:
        self.may_load.set()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        if self.answers is not None:
            return await self.answers(request, body)
        return web.json_response(reply_body())

    async def list_models(self, _: web.Request) -> web.Response:
        data = [{"id": name, "object": "model", "max_model_len": 4096} for name in self.models]
        return web.json_response({"object": "list", "data": data})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.well else 503)

    async def control(self, request: web.Request) -> web.Response:
        path = request.path
        body = json.loads(await request.read() or b"null")
        self.controls.append((str(request.rel_url), body))
        if self.refuses.get(path, 0) > 0:
            self.refuses[path] -= 1
            return web.json_response({"error": "out of memory"}, status=500)
        if path in {"/pause", "/resume"}:
            self.paused = path == "/pause"
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path in {"/collective_rpc", "/update_weights_from_disk", "/reload"}:
            self.loading.set()
            await self.may_load.wait()
            self.version = str(body.get("weight_version", body.get("version", self.version)))
        return web.json_response(
            {"success": True, "weight_version": self.version, "is_paused": self.paused, "count": 5}
        )


@asynccontextmanager
async def engines(*names: str) -> AsyncIterator[list[PoolEngine]]:
    """Engines of those names, each on a free port."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_engine(name)) for name in names]


@asynccontextmanager
async def _engine(name: str) -> AsyncIterator[PoolEngine]:
    engine = PoolEngine(name)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.chat)
    app.router.add_post("/v1/completions", engine.chat)
    app.router.add_get("/v1/models", engine.list_models)
    app.router.add_get("/health", engine.health)
    app.router.add_route("*", "/{control:.*}", engine.control)
    async with serving(app, handler_cancellation=True) as engine.url:
        yield engine


QUIET: dict[str, Any] = {"health_interval_ms": 0, "update_retry_ms": 10}


def pool(name: str, *members: PoolEngine, engine: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A pool's settings."""
    listed = [{"name": m.name, "url": m.url, **(engine or {})} for m in members]
    return {"name": name, "engines": listed, **settings}


@asynccontextmanager
async def upstream_of(*pools: Any, **settings: Any) -> AsyncIterator[Upstream]:
    upstream = Upstream(UpstreamSettings.model_validate({**QUIET, "pools": list(pools), **settings}))
    try:
        yield upstream
    finally:
        await upstream.close()


def call_for(model: str = "policy", **fields: Any) -> ChatCall:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
    return ChatCompletions().parse(json.dumps(body).encode())


async def ask(upstream: Upstream, model: str = "policy", affinity: str = "t1", **options: Any) -> Answer:
    """A whole call; what was gathered of it."""
    answer = Answer()
    async with upstream.ask(call_for(model), answer, affinity=affinity, **options) as reply:
        reply.whole(EngineObject.parse(await reply.read()))
    return answer


def status(code: int, **headers: str) -> Answering:
    """Answers every call with that status."""

    async def answering(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": f"said {code}"}}, status=code, headers=headers)

    return answering


def published(version: int, *, at: int | None = None, policy: str = "policy") -> PolicyPublished:
    return PolicyPublished(
        event_id=f"e{version}-{at}",
        event_time_ms=version if at is None else at,
        source="trainer",
        policy=policy,
        version=version,
        weights_uri=f"file:///weights/v{version}",
        digest="sha256:0",
    )


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
