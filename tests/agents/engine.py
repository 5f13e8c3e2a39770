"""`python -m tests.agents.engine`: a scripted model behind vLLM's chat completions API, token by token."""

from __future__ import annotations

import argparse
import asyncio
import socket
from pathlib import Path

import msgspec
from aiohttp import web

from infra.local.ports import LOOPBACK
from tests.agents.engine_log import Refused, Served
from tests.agents.policy import next_turn
from tests.agents.toolbox import tools_of
from tests.support.engine.log import EngineLog
from tests.support.engine.replies import MODEL, Reply, begin_reply, event
from tests.support.engine.sampling import message_of

_MAX_BODY_BYTES = 64 * 1024**2
_BEARER = "Bearer "


class _Asked(msgspec.Struct):
    """What of a request is noted as it came."""

    messages: list[msgspec.Raw]
    tools: msgspec.Raw = msgspec.Raw(b"null")


class Engine:
    """The routes and what they share."""

    def __init__(self, log: EngineLog, *, reasoning: bool, pause_ms: float) -> None:
        self._log = log
        self._reasoning = reasoning
        self._pause_s = pause_ms / 1000

    def app(self) -> web.Application:
        """The application. Paths before `/v1/` are ignored, so that clients can be pointed here directly."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/{before:.*}v1/chat/completions", self._chat)
        app.router.add_get("/{before:.*}v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/{anything:.*}", self._unknown)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "agentworld"}
        return web.json_response({"object": "list", "data": [model]})

    async def _unknown(self, request: web.Request) -> web.Response:
        return self._refuse(request, 404, f"{request.method} {request.path}: this engine has no such route")

    def _refuse(self, request: web.Request, status: int, message: str) -> web.Response:
        asked = f"{request.method} {request.path_qs}"
        self._log.write(Refused(caller=_caller(request), path=asked, status=status))
        return web.json_response(
            {"error": {"message": message, "type": "BadRequestError", "code": status}}, status=status
        )

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        body = msgspec.json.decode(raw)
        if not isinstance(body, dict) or not body.get("messages"):
            return self._refuse(http, 400, "messages must be a list of at least one message")
        if (body.get("n") or 1) != 1:
            return self._refuse(http, 400, "n must be 1 here")
        asked = msgspec.json.decode(raw, type=_Asked)
        turn = next_turn(body, reasoning=self._reasoning)
        reply = begin_reply(body, turn)
        try:
            if body.get("stream"):
                return await self._stream(
                    http, reply, usage=bool((body.get("stream_options") or {}).get("include_usage"))
                )
            return web.Response(body=msgspec.json.encode(reply.whole()), content_type="application/json")
        finally:
            sent = reply.tokens[: reply.sent]
            self._log.write(
                Served(
                    id=reply.id,
                    caller=_caller(http),
                    kind=turn.kind,
                    model=reply.model,
                    stream=bool(body.get("stream")),
                    messages=[_text(message) for message in asked.messages],
                    tools=_text(asked.tools),
                    prompt_ids=reply.prompt_ids,
                    response_ids=[token.token_id for token in sent],
                    logprobs=[token.logprob for token in sent],
                    message=message_of(sent),
                    finish_reason=reply.finish_reason if reply.sent == len(reply.tokens) else "abort",
                    offered=[tool.name for tool in tools_of(body)],
                    called=[use.name for use in turn.calls],
                )
            )

    async def _stream(self, http: web.Request, reply: Reply, *, usage: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        await asyncio.sleep(self._pause_s)
        await response.write(event(reply.opening()))
        while reply.sent < len(reply.tokens):
            await asyncio.sleep(self._pause_s if reply.sent == len(reply.tokens) // 2 else 0)
            await response.write(event(reply.next_chunk()))
        if usage:
            await response.write(event(reply.usage_chunk()))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _caller(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix(_BEARER)


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.agents.engine", description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="JSONL file for every request")
    parser.add_argument("--reasoning", action="store_true", help="think before each turn")
    parser.add_argument(
        "--pause-ms", type=float, default=0.0, help="silence before and in the middle of a streamed turn"
    )
    arguments = parser.parse_args()
    engine = Engine(EngineLog(arguments.log), reasoning=arguments.reasoning, pause_ms=arguments.pause_ms)
    listener = socket.create_server((LOOPBACK, 0))
    print(f"listening on http://{LOOPBACK}:{listener.getsockname()[1]}", flush=True)
    web.run_app(
        engine.app(),
        sock=listener,
        access_log=None,
        print=None,
        handler_cancellation=True,
        shutdown_timeout=2.0,
    )


if __name__ == "__main__":
    main()
