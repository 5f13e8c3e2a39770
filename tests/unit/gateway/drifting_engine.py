"""An engine that takes prompts as ids, and whose tokenizer reads text otherwise than it was sampled.

Ids below 256 are bytes; pairs of lower-case letters have a token of their own, which tokenizing always
takes and sampling never does. So what is sampled never comes back from its text.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.serving import serving

END, BEGIN = 1000, 1001
_PAIRS = 2000


def tokenized(text: str) -> list[int]:
    """Greedy: pairs of lower-case letters first."""
    data, ids, at = text.encode(), [], 0
    while at < len(data):
        pair = data[at : at + 2]
        if len(pair) == 2 and pair.isalpha() and pair.islower():
            ids.append(_PAIRS + (pair[0] - 97) * 26 + pair[1] - 97)
            at += 2
        else:
            ids.append(data[at])
            at += 1
    return ids


def sampled(text: str) -> list[int]:
    """Byte by byte, and the end of the turn."""
    return [*text.encode(), END]


def decoded(ids: list[int]) -> str:
    out = bytearray()
    for i in ids:
        if i >= _PAIRS:
            out += bytes([97 + (i - _PAIRS) // 26, 97 + (i - _PAIRS) % 26])
        elif i < 256:
            out.append(i)
    return out.decode()


def _content(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    for call in message.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])  # as templates do: spaces are the template's
        content += f"<call>{call['function']['name']} {json.dumps(arguments)}</call>"
    return str(content)


@dataclass
class DriftingEngine:
    """Says what `says` holds, in order. A turn that begins with `<call>` is parsed as a tool call."""

    says: list[str]
    kind: str = "vllm"
    obeys: bool = True
    """Whether it takes prompts as ids."""
    renders: bool = True
    """Whether it has a route for that."""
    forgets_thoughts: bool = False
    """Whether its template leaves `<think>…</think>` out of earlier turns."""
    reason: dict[str, Any] = field(default_factory=dict)
    """What it says of each turn's end besides its finish reason."""
    finish_reason: str = "stop"
    prompts: list[list[int]] = field(default_factory=list)
    """What it sampled from."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    renderings: int = 0
    url: str = ""

    def render(self, body: dict[str, Any]) -> list[int]:
        ids: list[int] = []
        if body.get("tools"):
            ids += [BEGIN, *tokenized("tools\n" + json.dumps(body["tools"])), END, 10]
        for message in body["messages"]:
            text = _content(message)
            if self.forgets_thoughts and message["role"] == "assistant":
                text = text.rpartition("</think>")[2]
            ids += [BEGIN, *tokenized(message["role"] + "\n" + text), END, 10]
        return [*ids, BEGIN, *tokenized("assistant\n")]

    async def tokenize(self, request: web.Request) -> web.Response:
        if not self.renders:
            return web.Response(status=404)
        self.renderings += 1
        ids = self.render(await request.json())
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": 9999})

    async def detokenize(self, request: web.Request) -> web.Response:
        text = decoded((await request.json())["tokens"])
        return web.json_response({"text" if self.kind == "sglang" else "prompt": text})

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        given = (body.get("kv_transfer_params") or {}).get("prompt_token_ids") or body.get("input_ids")
        return list(given) if given and self.obeys else self.render(body)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        prompt, text = self._prompt(body), self.says[len(self.prompts)]
        self.prompts.append(prompt)
        ids = sampled(text) if self.finish_reason == "stop" else sampled(text)[:-1]
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if text.startswith("<call>"):
            name, _, arguments = text.removeprefix("<call>").removesuffix("</call>").partition(" ")
            function = {"name": name, "arguments": arguments}
            call = {"id": f"c{len(self.prompts)}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        head = {"id": f"x{len(self.prompts)}", "model": "tiny", "object": "chat.completion"}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
        logprobs = {"content": [{"token": "", "logprob": -0.5} for _ in ids]}
        reason = "tool_calls" if message.get("tool_calls") else self.finish_reason
        sglang = self.kind == "sglang"
        choice = {"index": 0, "logprobs": logprobs, "finish_reason": reason, **self.reason}
        if not body.get("stream"):
            choice |= {"message": message, ("response_token_ids" if sglang else "token_ids"): ids}
            (choice if sglang else head)["prompt_token_ids"] = prompt  # type: ignore[index]
            return web.json_response({**head, "choices": [choice], "usage": usage})
        for index, call in enumerate(message.get("tool_calls") or ()):
            call["index"] = index
        chunks: list[dict[str, Any]] = [{"choices": [{**choice, "delta": message}]}]
        if sglang:
            chunks.append({"choices": [], "sglext": {"input_ids": prompt, "output_ids": [ids]}})
        else:
            chunks[0] |= {"prompt_token_ids": prompt}
            chunks[0]["choices"][0]["token_ids"] = ids
        chunks.append({"choices": [], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks:
            whole = {**head, "object": "chat.completion.chunk", **chunk}
            await response.write(b"data: " + json.dumps(whole).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})


@asynccontextmanager
async def drifting(*says: str, **options: Any) -> AsyncIterator[DriftingEngine]:
    """The engine on a free port of loopback."""
    engine = DriftingEngine(list(says), **options)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.chat)
    app.router.add_post("/v1/tokenize" if engine.kind == "sglang" else "/tokenize", engine.tokenize)
    app.router.add_post("/v1/detokenize" if engine.kind == "sglang" else "/detokenize", engine.detokenize)
    app.router.add_get("/v1/models", engine.models)
    async with serving(app) as engine.url:
        yield engine
