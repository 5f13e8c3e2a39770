"""A scripted judge behind an OpenAI-compatible endpoint, on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web

Play = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedJudge:
    """Answers each call by the next play; when they are used up, by `otherwise`."""

    def __init__(self, plays: Iterable[Play] = (), *, otherwise: Play | None = None) -> None:
        self.plays = deque(plays)
        self.otherwise = otherwise or says(score(0.75))
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.open = 0
        self.most_open = 0
        self.app = web.Application()
        self.app.router.add_post("/v1/chat/completions", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await (self.plays.popleft() if self.plays else self.otherwise)(request)
        finally:
            self.open -= 1

    @property
    def prompts(self) -> list[str]:
        """The first message of each call."""
        return [request["messages"][0]["content"] for request in self.requests]


def score(value: Any, reason: str = "well argued") -> str:
    return json.dumps({"score": value, "reason": reason})


def says(text: str, *, usage: tuple[int, int] = (100, 10)) -> Play:
    """A chat completion with that text."""

    async def play(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "model": "judge-7b-0926",
                "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
            }
        )

    return play


def status(code: int, body: str = "", **headers: str) -> Play:
    async def play(_: web.Request) -> web.Response:
        return web.Response(
            status=code, text=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return play


def echoes_the_key(code: int) -> Play:
    """An endpoint that repeats the caller's credentials in its error."""

    async def play(request: web.Request) -> web.Response:
        return web.Response(status=code, text=f"wrong key: {request.headers.get('Authorization')}")

    return play


def says_the_key() -> Play:
    """A judge that repeats the caller's credentials in its reason."""

    async def play(request: web.Request) -> web.StreamResponse:
        return await says(score(0.5, f"because {request.headers.get('Authorization')}"))(request)

    return play


class Gated:
    """A play that answers `allowed` calls and lets the others wait until more are allowed."""

    def __init__(self, allowed: int, then: Play) -> None:
        self.allowed = allowed
        self._then = then
        self.answered = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        while self.answered >= self.allowed:
            await asyncio.sleep(0.01)
        self.answered += 1
        return await self._then(request)


def slow(seconds: float, then: Play) -> Play:
    async def play(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(request)

    return play
