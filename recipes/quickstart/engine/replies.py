"""Replies in the words of the OpenAI API, with the fields vLLM adds to it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recipes.quickstart.engine.chat_request import ChatRequest
from recipes.quickstart.engine.generation import Choice, Progress
from recipes.quickstart.engine.parsing import ToolCall
from recipes.quickstart.engine.sampling import Sampled
from recipes.quickstart.engine.vocabulary import token_bytes, token_text


@dataclass(frozen=True, slots=True)
class Completion:
    """What all parts of one reply share."""

    id: str
    created: int
    """Unix seconds."""
    model: str
    prompt_ids: Sequence[int]
    request: ChatRequest

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """The reply to a call without streaming."""
        reply = self._head("chat.completion")
        reply["choices"] = [self._whole_choice(choice) for choice in choices]
        reply["usage"] = self.usage(choices)
        if self.request.return_token_ids:
            reply["prompt_token_ids"] = list(self.prompt_ids)
        return reply

    def opening(self) -> dict[str, Any]:
        """The first chunk: roles, and the prompt's ids where asked for."""
        delta = {"role": "assistant", "content": ""}
        chunk = self._chunk([self._chunk_choice(i, dict(delta)) for i in range(self.request.choices)])
        if self.request.return_token_ids:
            chunk["prompt_token_ids"] = list(self.prompt_ids)
        return chunk

    def chunks(self, progress: Progress, calls_before: int) -> list[dict[str, Any]]:
        """The chunks for one token: the first carries its id and log-probability."""
        deltas: list[dict[str, Any]] = []
        for piece in progress.pieces:
            if isinstance(piece, str):
                deltas.append({"content": piece})
                continue
            head = {"index": calls_before, "id": _call_id(), "type": "function"}
            deltas.append({"tool_calls": [head | {"function": {"name": piece.name, "arguments": ""}}]})
            rest = {"index": calls_before, "function": {"arguments": piece.arguments}}
            deltas.append({"tool_calls": [rest]})
            calls_before += 1
        choices = [self._chunk_choice(progress.choice.index, delta) for delta in deltas or [{}]]
        if self.request.return_token_ids:
            choices[0]["token_ids"] = [progress.token.token_id]
        if self.request.logprobs:
            choices[0]["logprobs"] = self._logprobs([progress.token])
        choices[-1]["finish_reason"] = progress.choice.finish_reason
        return [self._chunk([choice]) for choice in choices]

    def closing(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """The last chunk where usage was asked for."""
        return self._chunk([]) | {"usage": self.usage(choices)}

    def usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Tokens in and out."""
        sampled = sum(len(choice.sampled) for choice in choices)
        return {
            "prompt_tokens": len(self.prompt_ids),
            "completion_tokens": sampled,
            "total_tokens": len(self.prompt_ids) + sampled,
        }

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._head("chat.completion.chunk") | {"choices": choices}

    def _chunk_choice(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        if self.request.return_token_ids:
            choice["token_ids"] = []
        return choice

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        text = "".join(piece for piece in choice.pieces if isinstance(piece, str))
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        calls = [piece for piece in choice.pieces if isinstance(piece, ToolCall)]
        if calls:
            message["tool_calls"] = [
                {
                    "id": _call_id(),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        whole: dict[str, Any] = {
            "index": choice.index,
            "message": message,
            "logprobs": self._logprobs(choice.sampled) if self.request.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if self.request.return_token_ids:
            whole["token_ids"] = choice.ids
        return whole

    def _logprobs(self, sampled: Sequence[Sampled]) -> dict[str, Any]:
        return {
            "content": [
                self._token(token.token_id, token.logprob)
                | {"top_logprobs": [self._token(i, logprob) for i, logprob in token.top]}
                for token in sampled
            ]
        }

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = f"token_id:{token_id}" if self.request.tokens_as_ids else token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(token_bytes(token_id))}


def _call_id() -> str:
    return f"call{uuid.uuid4().hex[:24]}"
