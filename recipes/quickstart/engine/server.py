"""The HTTP side: chat completions as vLLM answers them, plain and streaming."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler

from recipes.quickstart.engine.chat_request import BadRequest, parse_request
from recipes.quickstart.engine.generation import Choice, Progress, generate
from recipes.quickstart.engine.journal import Journal
from recipes.quickstart.engine.parsing import ToolCall
from recipes.quickstart.engine.replies import Completion
from recipes.quickstart.engine.template import render

MODEL = "demo-calculator"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine behaves."""

    log: Path | None = None
    """Where it notes every reply it sampled."""
    seed: int | None = None
    """Seed for requests that bring none; drawn at random if not given."""
    token_delay_ms: float = 0.0
    fail_every: int = 0
    """Every k-th completion answers 500; 0 for none. For tests of clients and gateways."""
    max_model_tokens: int = 32_768
    """Prompt and reply together."""


class Engine:
    """The routes and what they share."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._journal = Journal(options.log)
        self._seeds = np.random.SeedSequence(options.seed)
        self._received = itertools.count(1)

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[_errors], client_max_size=64 * 1024**2)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        app.on_cleanup.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self._journal.close()

    async def health(self, _: web.Request) -> web.Response:
        """200 as soon as it can answer."""
        return web.json_response({"status": "ok", "model": MODEL})

    async def models(self, _: web.Request) -> web.Response:
        """The one model."""
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "agentworld"}
        model["max_model_len"] = self._options.max_model_tokens
        return web.json_response({"object": "list", "data": [model]})

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """One chat completion."""
        try:
            request = parse_request(msgspec.json.decode(await http.read()))
        except msgspec.DecodeError as exc:
            raise BadRequest(f"the body is not JSON: {exc}") from exc
        if request.model not in {None, "", "default", MODEL}:
            raise BadRequest(
                f"The model `{request.model}` does not exist. Use `{MODEL}`.", status=404, param="model"
            )
        if self._options.fail_every and next(self._received) % self._options.fail_every == 0:
            raise BadRequest("failing on purpose (--fail-every)", status=500)
        prompt_ids = render(request.messages, request.tools)
        room = self._options.max_model_tokens - len(prompt_ids)
        if room < 1:
            raise BadRequest(
                f"This model's maximum context length is {self._options.max_model_tokens} tokens. However, "
                f"your messages have {len(prompt_ids)} tokens. Please shorten them.",
                param="messages",
            )
        completion = Completion(
            id=f"chatcmpl-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=MODEL,
            prompt_ids=prompt_ids,
            request=request,
        )
        choices = [Choice(index) for index in range(request.choices)]
        max_tokens = min(room, request.max_tokens or room)
        async with aclosing(self._sample(completion, choices, max_tokens)) as progress:
            if request.stream:
                return await _stream(http, completion, choices, progress)
            async for _ in progress:
                pass
        return web.Response(
            body=msgspec.json.encode(completion.whole(choices)), content_type="application/json"
        )

    async def _sample(
        self, completion: Completion, choices: list[Choice], max_tokens: int
    ) -> AsyncGenerator[Progress]:
        """All choices in turn, a token each; every choice is in the journal when this ends."""
        request = completion.request
        source = (
            self._seeds.spawn(1)[0] if request.seed is None else np.random.SeedSequence(abs(request.seed))
        )
        running = [
            generate(
                choice, completion.prompt_ids, request, rng=np.random.default_rng(seed), max_tokens=max_tokens
            )
            for choice, seed in zip(choices, source.spawn(len(choices)), strict=True)
        ]
        noted: set[int] = set()

        def note(choice: Choice) -> None:
            if choice.index not in noted:
                noted.add(choice.index)
                self._journal.write(completion.id, completion.prompt_ids, choice)

        try:
            while running:
                for sampling in list(running):
                    step = next(sampling)
                    if step.choice.finish_reason is not None:
                        running.remove(sampling)
                        note(step.choice)
                    yield step
                await asyncio.sleep(self._options.token_delay_ms / 1000)
        finally:
            for choice in choices:
                note(choice)


async def _stream(
    http: web.Request, completion: Completion, choices: list[Choice], progress: AsyncGenerator[Progress]
) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    await response.prepare(http)

    async def send(chunk: dict[str, Any]) -> None:
        await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")

    calls = [0] * len(choices)
    await send(completion.opening())
    async for step in progress:
        index = step.choice.index
        for chunk in completion.chunks(step, calls[index]):
            await send(chunk)
        calls[index] += sum(isinstance(piece, ToolCall) for piece in step.pieces)
    if completion.request.include_usage:
        await send(completion.closing(choices))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as exc:
        kind = {404: "NotFoundError", 500: "InternalServerError"}.get(exc.status, "BadRequestError")
        error = {"message": str(exc), "type": kind, "param": exc.param, "code": exc.status}
        return web.json_response({"error": error}, status=exc.status)
    except web.HTTPException as exc:
        error = {
            "message": f"{request.method} {request.path}: {exc.reason}",
            "type": exc.reason,
            "code": exc.status,
        }
        return web.json_response({"error": error}, status=exc.status)
