"""A token-level engine: one token per byte of a template, so that prompts extend one another or do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.serving import serving

_END = 256
"""The token after each message."""


@dataclass(frozen=True)
class Turn:
    """What the engine samples next."""

    content: str | None = None
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name, arguments."""

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                for i, n, a in self.calls
            ]
        return message

    def deltas(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"reasoning": c} for c in _pieces(self.reasoning)]
        parts += [{"content": c} for c in _pieces(self.content or "")]
        for index, (call_id, name, arguments) in enumerate(self.calls):
            head = {"index": index, "id": call_id, "type": "function", "function": {"name": name}}
            parts.append({"tool_calls": [head]})
            parts += [
                {"tool_calls": [{"index": index, "function": {"arguments": a}}]} for a in _pieces(arguments)
            ]
        return parts


def _pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def rendered(message: dict[str, Any]) -> list[int]:
    """The template: what counts of a message, argument for argument as spelt; ids do not."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    calls = [
        (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
    ]
    text = json.dumps([message["role"], message.get("reasoning") or "", content or "", calls])
    return [*text.encode(), _END]


@dataclass
class TokenEngine:
    """Samples `turns` in order; what it was asked is in `requests`."""

    turns: list[Turn]
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """The same, as they came."""
    headers: list[dict[str, str]] = field(default_factory=list)
    pause_s: float = 0.0
    """Before the first byte of each reply."""
    url: str = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        turn = self.turns[len(self.requests)]
        self.requests.append(body)
        self.bodies.append(raw)
        self.headers.append(dict(request.headers))
        await asyncio.sleep(self.pause_s)
        prompt = [i for message in body["messages"] for i in rendered(message)]
        sampled = rendered(turn.message)
        head = {"id": f"chatcmpl-{len(self.requests)}", "model": "tiny", "created": 1}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
        usage["total_tokens"] = sum(usage.values())
        reason = "tool_calls" if turn.calls else "stop"
        if not body.get("stream"):
            choice = {
                "index": 0,
                "message": turn.message,
                "finish_reason": reason,
                "token_ids": sampled,
                "logprobs": _logprobs(sampled),
            }
            head |= {"object": "chat.completion", "prompt_token_ids": prompt, "usage": usage}
            return web.json_response(head | {"choices": [choice]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in _chunks(turn, sampled, reason):
            first = {"prompt_token_ids": prompt} if chunk["choices"][0].get("first") else {}
            whole = {**chunk, **head, "object": "chat.completion.chunk", **first}
            await response.write(b"data: " + json.dumps(whole).encode() + b"\n\n")
        last = json.dumps({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        await response.write(f"data: {last}\n\ndata: [DONE]\n\n".encode())
        await response.write_eof()
        return response

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})


def _logprobs(ids: list[int]) -> dict[str, Any]:
    return {"content": [{"token": "x", "logprob": -0.01 * (i % 7), "top_logprobs": []} for i in ids]}


def _chunks(turn: Turn, sampled: list[int], reason: str) -> list[dict[str, Any]]:
    deltas = turn.deltas()
    share = max(1, len(sampled) // max(1, len(deltas)))
    chunks = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "first": True}]
    rest = sampled
    for place, delta in enumerate(deltas):
        ids, rest = (rest, []) if place == len(deltas) - 1 else (rest[:share], rest[share:])
        chunks.append({"index": 0, "delta": delta, "token_ids": ids, "logprobs": _logprobs(ids)})
    chunks.append({"index": 0, "delta": {}, "finish_reason": reason})
    return [{"choices": [{"finish_reason": None, **chunk}]} for chunk in chunks]


@asynccontextmanager
async def sampling(*turns: Turn, pause_s: float = 0.0) -> AsyncIterator[TokenEngine]:
    """The engine on a free port of loopback."""
    engine = TokenEngine(list(turns), pause_s=pause_s)
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_post("/v1/chat/completions", engine.chat)
    app.router.add_get("/v1/models", engine.models)
    async with serving(app) as engine.url:
        yield engine
