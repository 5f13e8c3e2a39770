"""Between the gateway and vLLM: passes everything on, keeps what it said, holds its last token back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

PATHS = ("/v1/chat/completions", "/v1/completions")


@dataclass
class Told:
    """One answer of the engine, in its own words: a whole reply, or its chunks."""

    request: dict[str, Any]
    parts: list[dict[str, Any]] = field(default_factory=list)
    held_last: bool = False
    """The last token waited until the client had the first delta."""

    @property
    def prompt_ids(self) -> list[int] | None:
        for part in self.parts:
            for place in (part, *part["choices"]):
                if place.get("prompt_token_ids") is not None:
                    ids: list[int] = place["prompt_token_ids"]
                    return ids
        return None

    def choices(self) -> dict[int, tuple[list[int], list[float]]]:
        """Ids and log-probabilities by choice."""
        found: dict[int, tuple[list[int], list[float]]] = {}
        for choice in (choice for part in self.parts for choice in part["choices"]):
            ids, logprobs = found.setdefault(choice["index"], ([], []))
            ids += choice.get("token_ids") or []
            given = choice.get("logprobs") or {}
            logprobs += [item["logprob"] for item in given.get("content") or ()]
            logprobs += given.get("token_logprobs") or []
        return found


class Tap:
    """`answers` by the engine's own id of each."""

    def __init__(self, engine_url: str) -> None:
        self._engine = engine_url.rstrip("/").removesuffix("/v1")
        self._http: aiohttp.ClientSession | None = None
        self.answers: dict[str, Told] = {}
        self.sampling: dict[str, Any] = {}
        """Goes into every request: what protocols do not all have (`ignore_eos`, `seed`)."""
        self.client_has_delta: asyncio.Event | None = None
        """Where set: a stream's last token is held back until the test sets it."""
        self.url = ""

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the engine itself."""
        assert self._http is not None
        async with self._http.request(method, self._engine + path, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        assert self._http is not None
        sent = json.loads(await request.read() or b"null")
        if request.path in PATHS:
            sent |= self.sampling
        async with self._http.request(request.method, self._engine + request.path, json=sent) as reply:
            if reply.content_type == "text/event-stream":
                return await self._stream(request, reply, Told(sent))
            body = await reply.read()
            if reply.status == 200 and request.path in PATHS:
                whole = json.loads(body)
                self.answers[whole["id"]] = Told(sent, [whole])
            return web.Response(status=reply.status, body=body, content_type=reply.content_type)

    async def _stream(
        self, request: web.Request, reply: aiohttp.ClientResponse, told: Told
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        rest = b""
        async for part in reply.content.iter_any():
            *events, rest = (rest + part).split(b"\n\n")
            for event in events:
                if event.startswith(b"data: {"):
                    chunk = json.loads(event[6:])
                    told.parts.append(chunk)
                    self.answers[chunk["id"]] = told
                    if self.client_has_delta is not None and _is_last(chunk):
                        await self.client_has_delta.wait()
                        told.held_last = True
                await response.write(event + b"\n\n")
        with contextlib.suppress(ConnectionResetError):  # the gateway may be gone after `[DONE]`
            await response.write_eof()
        return response


def _is_last(chunk: dict[str, Any]) -> bool:
    """vLLM puts the finish reason beside the last token."""
    return any(choice.get("finish_reason") for choice in chunk["choices"])


@asynccontextmanager
async def tapped(engine_url: str) -> AsyncIterator[Tap]:
    """The tap on a free port of loopback."""
    tap = Tap(engine_url)
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_route("*", "/{anything:.*}", tap.pass_on)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tap.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as tap._http:
            yield tap
    finally:
        await runner.cleanup()
