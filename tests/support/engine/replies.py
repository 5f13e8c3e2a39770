"""One completion in vLLM's format, token by token or whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.support.engine.sampling import Token, Turn, message_of, sample
from tests.support.engine.tokens import render, token_bytes

MODEL = "scripted"


@dataclass(slots=True)
class Reply:
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

    def usage_chunk(self) -> dict[str, Any]:
        return self.head("chat.completion.chunk") | {"choices": [], "usage": self.usage()}

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


def begin_reply(body: dict[str, Any], turn: Turn) -> Reply:
    """The completion of a chat completions request by `turn`."""
    reply_id = f"chatcmpl-{uuid.uuid4().hex}"
    call_ids = [f"chatcmpl-tool-{uuid.uuid4().hex}" for _ in turn.calls]
    tokens = sample(turn, seed=reply_id, call_ids=call_ids)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(tokens)
    cut = len(tokens) > limit
    return Reply(
        id=reply_id,
        model=str(body.get("model") or MODEL),
        prompt_ids=render(body),
        tokens=tokens[:limit],
        finish_reason="length" if cut else "tool_calls" if turn.calls else "stop",
        with_ids=bool(body.get("return_token_ids")),
        with_logprobs=bool(body.get("logprobs")),
    )


def event(chunk: dict[str, Any]) -> bytes:
    """A chunk as a server-sent event."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
