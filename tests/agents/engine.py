"""`python -m tests.agents.engine`: a scripted model behind vLLM's chat completions API, token by token."""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tests.agents.engine_log import EngineLog, Refused, Served
from tests.agents.policy import Turn, next_turn
from tests.agents.sampling import Token, message_of, sample
from tests.agents.tokens import render, token_bytes
from tests.agents.toolbox import tools_of

_MODEL = "scripted"
_MAX_BODY_BYTES = 64 * 1024**2


@dataclass(slots=True)
class _Reply:
    """One completion under way."""

    id: str
    model: str
    prompt_ids: list[int]
    tokens: Sequence[Token]
    finish_reason: str
    with_ids: bool
    with_logprobs: bool
    sent: int = 0
    """How many tokens are out."""

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": self.model}

    def usage(self) -> dict[str, Any]:
        prompt, sampled = len(self.prompt_ids), len(self.tokens)
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}

    def logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self.with_logprobs:
            return None
        return {
            "content": [
                {
                    "token": token_bytes(token.token_id).decode(errors="replace"),
                    "logprob": token.logprob,
                    "bytes": list(token_bytes(token.token_id)),
                    "top_logprobs": [],
                }
                for token in tokens
            ]
        }

    def whole(self) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "message": message_of(self.tokens),
            "logprobs": self.logprobs(self.tokens),
            "finish_reason": self.finish_reason,
        }
        reply = self.head("chat.completion") | {"choices": [choice], "usage": self.usage()}
        if self.with_ids:
            choice["token_ids"] = [token.token_id for token in self.tokens]
            reply["prompt_token_ids"] = self.prompt_ids
        self.sent = len(self.tokens)
        return reply

    def opening(self) -> dict[str, Any]:
        chunk = self._chunk({"role": "assistant", "content": ""}, None)
        if self.with_ids:
            chunk["prompt_token_ids"] = self.prompt_ids
        return chunk

    def next_chunk(self) -> dict[str, Any]:
        token = self.tokens[self.sent]
        self.sent += 1
        return self._chunk(token.delta, token)

    def _chunk(self, delta: dict[str, Any], token: Token | None) -> dict[str, Any]:
        last = token is not None and self.sent == len(self.tokens)
        choice: dict[str, Any] = {
            "index": 0,
            "delta": delta,
            "logprobs": self.logprobs([token]) if token else None,
            "finish_reason": self.finish_reason if last else None,
        }
        if self.with_ids and token:
            choice["token_ids"] = [token.token_id]
        return self.head("chat.completion.chunk") | {"choices": [choice]}


class Engine:
    """The routes and what they share."""

    def __init__(self, log: EngineLog, *, reasoning: bool, token_delay_ms: float) -> None:
        self._log = log
        self._reasoning = reasoning
        self._token_delay_ms = token_delay_ms

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
        model = {"id": _MODEL, "object": "model", "created": 0, "owned_by": "agentworld"}
        return web.json_response({"object": "list", "data": [model]})

    async def _unknown(self, request: web.Request) -> web.Response:
        return self._refuse(request, 404, f"{request.method} {request.path}: this engine has no such route")

    def _refuse(self, request: web.Request, status: int, message: str) -> web.Response:
        self._log.write(Refused(path=f"{request.method} {request.path_qs}", status=status))
        return web.json_response(
            {"error": {"message": message, "type": "BadRequestError", "code": status}}, status=status
        )

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await http.read())
        if not isinstance(body, dict) or not body.get("messages"):
            return self._refuse(http, 400, "messages must be a list of at least one message")
        if (body.get("n") or 1) != 1:
            return self._refuse(http, 400, "n must be 1 here")
        turn = next_turn(body, reasoning=self._reasoning)
        reply = _start(body, turn)
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
                    kind=turn.kind,
                    model=reply.model,
                    stream=bool(body.get("stream")),
                    prompt_ids=reply.prompt_ids,
                    response_ids=[token.token_id for token in sent],
                    logprobs=[token.logprob for token in sent],
                    finish_reason=reply.finish_reason if reply.sent == len(reply.tokens) else "abort",
                    offered=[tool.name for tool in tools_of(body)],
                    called=[use.name for use in turn.calls],
                )
            )

    async def _stream(self, http: web.Request, reply: _Reply, *, usage: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        await response.write(_event(reply.opening()))
        while reply.sent < len(reply.tokens):
            await response.write(_event(reply.next_chunk()))
            await asyncio.sleep(self._token_delay_ms / 1000)
        if usage:
            await response.write(
                _event(reply.head("chat.completion.chunk") | {"choices": [], "usage": reply.usage()})
            )
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _start(body: dict[str, Any], turn: Turn) -> _Reply:
    reply_id = f"chatcmpl-{uuid.uuid4().hex}"
    call_ids = [f"chatcmpl-tool-{uuid.uuid4().hex}" for _ in turn.calls]
    tokens = sample(turn, seed=reply_id, call_ids=call_ids)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(tokens)
    cut = len(tokens) > limit
    return _Reply(
        id=reply_id,
        model=str(body.get("model") or _MODEL),
        prompt_ids=render(body),
        tokens=tokens[:limit],
        finish_reason="length" if cut else "tool_calls" if turn.calls else "stop",
        with_ids=bool(body.get("return_token_ids")),
        with_logprobs=bool(body.get("logprobs")),
    )


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.agents.engine", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True, help="JSONL file for every request")
    parser.add_argument("--reasoning", action="store_true", help="think before each turn")
    parser.add_argument("--token-delay-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    engine = Engine(
        EngineLog(arguments.log), reasoning=arguments.reasoning, token_delay_ms=arguments.token_delay_ms
    )
    web.run_app(
        engine.app(),
        host="127.0.0.1",
        port=arguments.port,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=2.0,
    )


if __name__ == "__main__":
    main()
