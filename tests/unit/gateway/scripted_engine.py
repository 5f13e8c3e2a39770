"""A real HTTP server on loopback that answers in vLLM's format, as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.serving import serving

Script = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]

PROMPT_IDS = [1, 2, 3]
TOKENS = [(10, "Hel", -0.1), (11, "lo ", -0.2), (12, "you", -0.3)]
TOOL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def reply_body(
    *,
    n: int = 1,
    tokens: list[tuple[int, str, float]] | None = None,
    prompt_ids: list[int] | None = None,
    tool_calls: list[dict[str, Any]] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A whole reply."""
    tokens = TOKENS if tokens is None else tokens
    prompt_ids = PROMPT_IDS if prompt_ids is None else prompt_ids
    text = "".join(t for _, t, _ in tokens)
    choice = {
        "message": {
            "role": "assistant",
            "content": None if tool_calls else text,
            "tool_calls": tool_calls or [],
        },
        "logprobs": {"content": [{"token": t, "logprob": p, "top_logprobs": []} for _, t, p in tokens]},
        "finish_reason": "tool_calls" if tool_calls else "stop",
        "token_ids": [i for i, _, _ in tokens],
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [{"index": i, **choice} for i in range(n)],
        "usage": {
            "prompt_tokens": len(prompt_ids),
            "completion_tokens": n * len(tokens),
            "total_tokens": len(prompt_ids) + n * len(tokens),
        },
        "prompt_token_ids": prompt_ids,
        **changes,
    }


def stream_chunks(*, n: int = 1, tool_calls: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The chunks of a streamed reply, usage last."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    first = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": i, **first}], "prompt_token_ids": PROMPT_IDS} for i in range(n)
    ]
    for place, (token, text, logprob) in enumerate(TOKENS):
        for index in range(n):
            delta: dict[str, Any] = {"content": text}
            if tool_calls:
                part = tool_calls[0]["function"]["arguments"]
                delta = {"tool_calls": [{"index": 0, "function": {"arguments": part if place == 0 else ""}}]}
                if place == 0:
                    delta["tool_calls"][0] |= {"id": tool_calls[0]["id"], "type": "function"}
                    delta["tool_calls"][0]["function"]["name"] = tool_calls[0]["function"]["name"]
            chunks.append(
                {
                    **head,
                    "choices": [
                        {
                            "index": index,
                            "delta": delta,
                            "logprobs": {"content": [{"token": text, "logprob": logprob}]},
                            "finish_reason": None,
                            "token_ids": [token],
                        }
                    ],
                }
            )
    for index in range(n):
        reason = "tool_calls" if tool_calls else "stop"
        chunks.append({**head, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]})
    usage = {"prompt_tokens": 3, "completion_tokens": n * 3, "total_tokens": 3 + n * 3}
    chunks.append({**head, "choices": [], "usage": usage})
    return chunks


def sse_bytes(chunks: list[dict[str, Any]], *, done: bool = True) -> bytes:
    """Chunks as vLLM writes them."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


@dataclass
class ScriptedEngine:
    """What it was asked, and what it does next."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    completions: list[dict[str, Any]] = field(default_factory=list)
    """What it was asked for text; it never answers."""
    headers: list[dict[str, str]] = field(default_factory=list)
    script: Script | None = None
    models: list[str] = field(default_factory=lambda: ["tiny"])
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        try:
            if self.script is not None:
                return await self.script(request, body)
            if body.get("stream"):
                return await self.stream(request, [sse_bytes(stream_chunks(n=body.get("n", 1)))])
            return web.json_response(reply_body(n=body.get("n", 1)))
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled.set()
            raise

    async def stream(self, request: web.Request, parts: list[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        await response.write_eof()
        return response

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.completions.append(await request.json())
        return web.Response(status=500)

    async def list_models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})


@asynccontextmanager
async def running_engine() -> AsyncIterator[ScriptedEngine]:
    """An engine on a free port of loopback."""
    engine = ScriptedEngine()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.chat)
    app.router.add_post("/v1/completions", engine.complete)
    app.router.add_get("/v1/models", engine.list_models)
    async with serving(app, handler_cancellation=True) as engine.url:
        yield engine
