"""`python -m tests.faults.engine`: a scripted model in vLLM's format that fails as each call asks it to."""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tests.faults import plays
from tests.faults.engine_log import Began, Ended
from tests.faults.plays import Play, asked
from tests.support.engine.log import EngineLog
from tests.support.engine.replies import MODEL, Reply, begin_reply, event
from tests.support.engine.sampling import Turn, message_of

_WORDS = ("tea", "für", "zwei", "→", "✓", "naïve", "42", "\n", "{}", "東京")
_LINGER_WORDS = 1_000
_PAGE = "<html><body>502 Bad Gateway</body></html>"
_STATUSES = {plays.STATUS_429.name: 429, plays.STATUS_500.name: 500, plays.PAGE_500.name: 500}


class Engine:
    """One model. Every request is noted when it begins and when it ends."""

    def __init__(self, log: EngineLog, *, token_delay_ms: float) -> None:
        self._log = log
        self._token_delay_s = token_delay_ms / 1000

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._models)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await http.read())
        mark, play = asked(body["messages"])
        self._log.write(Began(mark=mark))
        words = random.choices(_WORDS, k=_LINGER_WORDS if play is plays.LINGER else random.randint(2, 5))
        # Never blank: Anthropic's API knows no blank text, so a Messages client would be shown none.
        reply = begin_reply(body, Turn("turn", " ".join(["so", *words])))
        ended = "whole" if play is plays.ANSWER else "faulty"
        try:
            if play in {plays.ANSWER, plays.LINGER}:
                return await self._answer(http, reply, stream=bool(body.get("stream")))
            return await self._fail(http, reply, play, stream=bool(body.get("stream")))
        except (asyncio.CancelledError, ConnectionResetError):
            ended = "cancelled"
            raise
        finally:
            sent = reply.tokens[: reply.sent]
            self._log.write(
                Ended(
                    mark=mark,
                    id=reply.id,
                    prompt_ids=reply.prompt_ids,
                    response_ids=[token.token_id for token in sent],
                    logprobs=[token.logprob for token in sent],
                    text=message_of(sent)["content"] or "",
                    end=ended,
                )
            )

    async def _answer(self, http: web.Request, reply: Reply, *, stream: bool) -> web.StreamResponse:
        if not stream:
            await asyncio.sleep(self._token_delay_s * len(reply.tokens))
            return web.Response(body=msgspec.json.encode(reply.whole()), content_type="application/json")
        response = await self._some_tokens(http, reply, len(reply.tokens))
        await response.write(event(reply.usage_chunk()) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _some_tokens(self, http: web.Request, reply: Reply, count: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        await response.write(event(reply.opening()))
        while reply.sent < count:
            await response.write(event(reply.next_chunk()))
            await asyncio.sleep(self._token_delay_s)
        return response

    async def _half_a_body(self, http: web.Request, reply: Reply) -> web.StreamResponse:
        body = msgspec.json.encode(reply.whole())
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(body)
        await response.prepare(http)
        await response.write(body[: len(body) // 2])
        return response

    async def _fail(self, http: web.Request, reply: Reply, play: Play, *, stream: bool) -> web.StreamResponse:
        if play is plays.SILENT:
            await asyncio.Event().wait()
        if play is plays.CUT_BEFORE:
            return self._drop(http, web.Response())
        if (status := _STATUSES.get(play.name)) is not None:
            return _refusal(status, page=play is plays.PAGE_500)
        if play is plays.PAGE_200:
            return web.Response(text=_PAGE, content_type="text/html")
        if not stream and play not in {plays.CUT, plays.STALLED}:
            return web.Response(body=_wrong_body(play), content_type="application/json")
        if stream:
            response = await self._some_tokens(http, reply, random.randint(0, len(reply.tokens) - 1))
        else:
            response = await self._half_a_body(http, reply)
        if play is plays.STALLED:
            await asyncio.Event().wait()
        if play is plays.CUT:
            return self._drop(http, response)
        if play is not plays.EARLY_END:
            await response.write(b"data: " + _wrong_body(play) + b"\n\n")
        await response.write_eof()
        return response

    def _drop(self, http: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        assert http.transport is not None
        http.transport.close()
        return response


def _refusal(status: int, *, page: bool) -> web.Response:
    if page:
        return web.Response(status=status, text=_PAGE, content_type="text/html")
    error = {"message": "the engine is too busy", "type": "BusyError", "code": status}
    return web.json_response({"error": error}, status=status, headers={"Retry-After": "3"})


def _wrong_body(play: Play) -> bytes:
    if play is plays.ERROR_INSIDE:
        return b'{"error": {"message": "out of memory", "code": 500}}'
    return b'{"id": "chatcmpl-none", "choices": []}' if play is plays.NO_CHOICES else b'{"choices": [{"del'


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.engine", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True, help="JSONL file for every call")
    parser.add_argument("--token-delay-ms", type=float, default=5.0)
    arguments: Any = parser.parse_args()
    engine = Engine(EngineLog(arguments.log), token_delay_ms=arguments.token_delay_ms)
    web.run_app(
        engine.app(),
        host="127.0.0.1",
        port=arguments.port,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=1.0,
        print=None,
    )


if __name__ == "__main__":
    main()
