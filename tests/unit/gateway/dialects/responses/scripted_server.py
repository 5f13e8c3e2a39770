"""The dialect behind a small HTTP server, over an engine that says what the test wrote down."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from agentworld.contract.errors import InvalidInput
from gateway.dialects.responses import Responses, ResponsesCall
from gateway.failures import Failure
from tests.unit.gateway.dialects.responses.engine_turns import Turn, chunks, in_fives, whole


@dataclass
class ScriptedServer:
    """`turns` are answered in order; what was asked is in `calls`."""

    turns: list[Turn]
    base_url: str = ""
    calls: list[ResponsesCall] = field(default_factory=list)
    breaks_off: bool = False
    """Fail each stream after its third chunk."""

    def __post_init__(self) -> None:
        self._dialect = Responses()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        try:
            call = self._dialect.parse(await request.read())
        except InvalidInput as exc:
            failure = Failure.of(exc)
            return web.Response(
                status=failure.status, body=self._dialect.error(failure), content_type="application/json"
            )
        turn = self.turns[len(self.calls)]
        self.calls.append(call)
        if not call.stream:
            return web.Response(body=self._dialect.reply(call, whole(turn)), content_type="application/json")
        return await self._stream(request, call, turn)

    async def _stream(self, request: web.Request, call: ResponsesCall, turn: Turn) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        stream = self._dialect.stream(call)
        await reply.write(stream.keepalive())
        for number, chunk in enumerate(chunks(turn, in_fives)):
            await reply.write(stream.keepalive())
            if self.breaks_off and number == 3:
                await reply.write(stream.fail(Failure(502, "upstream_broke_off", "the engine is gone")))
                return reply
            if out := stream.feed(chunk):
                await reply.write(out)
        await reply.write(stream.finish())
        return reply


@contextlib.asynccontextmanager
async def serving(*turns: Turn, breaks_off: bool = False) -> AsyncIterator[ScriptedServer]:
    """A server on a free port of the loopback."""
    server = ScriptedServer(list(turns), breaks_off=breaks_off)
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_post("/v1/responses", server.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.base_url = f"http://{host}:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
