"""Sampled turns as the event stream of each kind of engine, in the shapes that they were seen to send."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.engines import EngineAdapter, EngineKind, adapter_of
from gateway.engines.completions import CompletionsAdapter

KINDS: tuple[EngineKind, ...] = ("vllm", "policy_server", "sglang", "openai")
PROMPT_IDS = [9707, 11, 1879]
Delta = dict[str, Any]
Chunk = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One choice, as the pieces that single tokens add."""

    reasoning: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Name, and the pieces of the arguments."""

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"

    @property
    def deltas(self) -> list[Delta]:
        """One a token, in vLLM's words; the last token ends the turn and says nothing."""
        deltas: list[Delta] = [{"reasoning": piece} for piece in self.reasoning]
        deltas += [{"content": piece} for piece in self.text]
        for index, (name, pieces) in enumerate(self.calls):
            head = {"index": index, "id": f"call_{index}", "type": "function"}
            deltas.append({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
            deltas += [{"tool_calls": [{"index": index, "function": {"arguments": p}}]} for p in pieces]
        return [*deltas, {}]

    def ids(self, choice: int) -> list[int]:
        return [1000 * (choice + 1) + place for place in range(len(self.deltas))]

    @property
    def logprobs(self) -> list[float]:
        return [-0.125 * (place % 9) for place in range(len(self.deltas))]


def adapter_for(kind: EngineKind, *, is_chat: bool) -> EngineAdapter:
    """What the gateway reads such an engine with."""
    return adapter_of(kind) if is_chat else CompletionsAdapter()


def chunks_of(kind: EngineKind, turns: Sequence[Turn], *, is_chat: bool = True) -> list[Chunk]:
    """The chunks of a reply, a token each, the choices taking turns; usage last."""
    samplers = [_choices(kind, turn, index, is_chat=is_chat) for index, turn in enumerate(turns)]
    choices = [c for row in itertools.zip_longest(*samplers) for c in row if c is not None]
    name = "chat.completion.chunk" if is_chat else "text_completion"
    head = {"id": f"{kind}-1", "object": name, "created": 1, "model": "tiny"}
    chunks: list[Chunk] = [{**head, "choices": [choice]} for choice in choices]
    if is_chat and kind in {"vllm", "policy_server"}:
        chunks[0]["prompt_token_ids"] = PROMPT_IDS
    if kind == "vllm":
        chunks[-1]["weight_versions"] = [7, 8]
    if kind == "policy_server":
        chunks[-1]["weight_version"] = "7"
    if is_chat and kind == "sglang":
        ids = [turn.ids(index) for index, turn in enumerate(turns)]
        chunks.append({**head, "choices": [], "sglext": {"input_ids": PROMPT_IDS, "output_ids": ids}})
    sampled = sum(len(turn.deltas) for turn in turns)
    usage = {"prompt_tokens": len(PROMPT_IDS), "completion_tokens": sampled}
    return [*chunks, {**head, "choices": [], "usage": usage | {"total_tokens": sum(usage.values())}}]


def _choices(kind: EngineKind, turn: Turn, index: int, *, is_chat: bool) -> Iterator[Delta]:
    if is_chat:
        yield {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    whole = zip(turn.ids(index), turn.logprobs, turn.deltas, strict=True)
    for place, (token, logprob, delta) in enumerate(whole):
        last = place == len(turn.deltas) - 1
        choice: dict[str, Any] = {"index": index, "finish_reason": turn.finish_reason if last else None}
        if is_chat:
            content = [{"token": "x", "logprob": logprob, "bytes": None, "top_logprobs": []}]
            choice |= {"delta": _worded(kind, delta), "logprobs": {"content": content}}
        else:
            choice |= {"text": delta.get("content", ""), "logprobs": {"token_logprobs": [logprob]}}
            if place == 0:
                choice["prompt_token_ids"] = PROMPT_IDS
        if not is_chat or kind in {"vllm", "policy_server"}:
            choice["token_ids"] = [token]
        yield choice


def _worded(kind: EngineKind, delta: Delta) -> Delta:
    """A delta in the engine's own words."""
    if kind in {"vllm", "policy_server"}:
        return delta
    if "reasoning" in delta:
        return {"reasoning_content": delta["reasoning"]}
    if kind == "sglang":
        blank = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
        parts = [
            {"id": None, "type": "function", **part, "function": {"name": None, **part["function"]}}
            for part in delta.get("tool_calls", ())
        ]
        return {**blank, **delta, **({"tool_calls": parts} if parts else {})}
    return delta


def event(chunk: Chunk, *, ascii_only: bool = True) -> bytes:
    """One event."""
    return b"data: " + json.dumps(chunk, ensure_ascii=ascii_only).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
