"""An engine that samples its next token only once the client has seen what the last one added."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from gateway.engines import EngineKind
from tests.support.serving import serving
from tests.unit.gateway.streams.client_streams import STREAMED, ClientReader, Kind
from tests.unit.gateway.streams.engine_streams import DONE, Turn, chunks_of, event

PIECES: dict[Kind, tuple[str, ...]] = {
    "text": ("One", " two", " three", " drei \u2192"),
    "reasoning": ("First", " this", ", then", " that"),
    "arguments": ('{"path"', ': "a', ".txt", '"}'),
}


def turn_of(kind: Kind) -> Turn:
    """A turn that says `PIECES[kind]`."""
    if kind == "text":
        return Turn(text=PIECES[kind])
    if kind == "reasoning":
        return Turn(reasoning=PIECES[kind], text=("So",))
    return Turn(calls=(("read", PIECES[kind]),))


class LockstepEngine:
    """Answers every call with `turn_of(kind)`; how far it has sampled is in `sampled`."""

    def __init__(self, engine: EngineKind) -> None:
        self._engine = engine
        self.kind: Kind = "text"
        self.sampled = 0
        """Pieces of `kind` that the engine has sent."""
        self.ended = False
        self._seen = asyncio.Semaphore(0)
        self.url = ""

    def seen(self) -> None:
        """The client has the last piece: the next token may be sampled."""
        self._seen.release()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.sampled, self.ended = 0, False
        self._seen = asyncio.Semaphore(0)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        is_chat = request.path.endswith("/chat/completions")
        for chunk in chunks_of(self._engine, [turn_of(self.kind)], is_chat=is_chat):
            if (said := self._says(chunk)) and self.sampled:
                await self._seen.acquire()
            if said:
                self.sampled += 1
            await response.write(event(chunk))
            if self.sampled == len(PIECES[self.kind]) and not self.ended:
                await self._seen.acquire()
                self.ended = True
        await response.write(DONE)
        await response.write_eof()
        return response

    def _says(self, chunk: dict[str, Any]) -> bool:
        for choice in chunk["choices"]:
            delta = choice.get("delta", {"content": choice.get("text")})
            found = {
                "text": delta.get("content"),
                "reasoning": delta.get("reasoning") or delta.get("reasoning_content"),
                "arguments": "".join(c["function"]["arguments"] for c in delta.get("tool_calls") or ()),
            }
            if found[self.kind]:
                return True
        return False

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})


@asynccontextmanager
async def in_lockstep(kind: EngineKind) -> AsyncIterator[LockstepEngine]:
    """The engine on a free port of loopback."""
    engine = LockstepEngine(kind)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.answer)
    app.router.add_post("/v1/completions", engine.answer)
    app.router.add_get("/v1/models", engine.models)
    async with serving(app, handler_cancellation=True) as engine.url:
        yield engine


async def check_lockstep(
    http: aiohttp.ClientSession, url: str, path: str, engine: LockstepEngine, kind: Kind
) -> None:
    """Read one reply at `url`, telling the engine of each piece. A piece held back would never come."""
    engine.kind = kind
    reader = ClientReader(path)
    waiting = list(PIECES[kind])
    # The limit turns a deadlock into a failure; nothing depends on how long anything takes.
    async with asyncio.timeout(60), http.post(f"{url}/v1/{path}", json=STREAMED[path]) as response:
        assert response.status == 200, await response.text()
        while waiting:
            part = await response.content.readany()
            assert part, "the reply ended before all was said"
            for piece in reader.feed(part):
                if piece.kind == kind:
                    assert piece.text == waiting.pop(0)
                    assert engine.sampled == len(PIECES[kind]) - len(waiting)
                    assert not engine.ended
                    assert not reader.ended
                    engine.seen()
        reader.feed(await response.content.read())
    assert reader.ended
    assert reader.joined(kind) == "".join(PIECES[kind])
