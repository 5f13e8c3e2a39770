"""What vLLM's API does with the same calls, without a model: so that the checks are known to work."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.support.serving import serving
from tests.unit.gateway.streams.engine_streams import DONE, PROMPT_IDS, Turn, chunks_of, event

_SAYS = Turn(text=("One", " and", " two", " → ", "three."))
_CALLS = Turn(calls=(("add", ('{"a"', ": ", "true", "}")),))


Refuse = Callable[[web.Request], web.Response | None]


@dataclass
class StandIn:
    """The routes."""

    turn: Turn | None
    """What every choice is; default: a text, or a tool call where tools are offered."""
    refuse: Refuse | None
    """Asked before each completion."""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.refuse is not None and (refused := self.refuse(request)) is not None:
            return refused
        is_chat = request.path.endswith("/chat/completions")
        turn = self.turn or (_CALLS if body.get("tools") else _SAYS)
        said = {"id": f"stand-in-{uuid.uuid4().hex}"}
        chunks = [c | said for c in chunks_of("vllm", [turn] * (body.get("n") or 1), is_chat=is_chat)]
        if not body.get("stream"):
            return web.json_response(_whole(chunks, turn, is_chat=is_chat))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(event(chunk))
        await response.write(DONE)
        return response


def _whole(chunks: list[dict[str, Any]], turn: Turn, *, is_chat: bool) -> dict[str, Any]:
    """The chunks put together, as vLLM answers without a stream."""
    choices: dict[int, dict[str, Any]] = {}
    for part in (choice for chunk in chunks for choice in chunk["choices"]):
        choice = choices.setdefault(part["index"], {"index": part["index"], "token_ids": [], "logprobs": {}})
        choice["token_ids"] += part.get("token_ids", [])
        choice["finish_reason"] = part["finish_reason"]
        for name, values in part.get("logprobs", {}).items():
            choice["logprobs"].setdefault(name, []).extend(values)
        if is_chat:
            calls = [
                {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": "".join(a)}}
                for i, (n, a) in enumerate(turn.calls)
            ]
            choice["message"] = {"role": "assistant", "content": "".join(turn.text), "tool_calls": calls}
            choice["message"] |= {"reasoning": "".join(turn.reasoning)} if turn.reasoning else {}
        else:
            choice |= {"text": "".join(turn.text), "prompt_token_ids": PROMPT_IDS}
    head = {name: chunks[0][name] for name in ("id", "created", "model")}
    head["object"] = "chat.completion" if is_chat else "text_completion"
    ids = {"prompt_token_ids": PROMPT_IDS} if is_chat else {}
    return {**head, **ids, "choices": list(choices.values()), "usage": chunks[-1]["usage"]}


async def _tokenize(_: web.Request) -> web.Response:
    return web.json_response({"tokens": PROMPT_IDS, "count": len(PROMPT_IDS)})


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})


@asynccontextmanager
async def standing_in(turn: Turn | None = None, *, refuse: Refuse | None = None) -> AsyncIterator[str]:
    """Its URL, with `/v1`."""
    engine = StandIn(turn, refuse)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.complete)
    app.router.add_post("/v1/completions", engine.complete)
    app.router.add_post("/tokenize", _tokenize)
    app.router.add_get("/v1/models", _models)
    async with serving(app) as url:
        yield url
