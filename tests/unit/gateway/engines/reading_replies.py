"""Reads an engine's bytes as the exchange does, and describes what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway.canonical import ChatCall
from gateway.dialects import ChatCompletions
from gateway.engine import Answer, EngineObject
from gateway.engines import adapter_of
from gateway.sse import SseParser

HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def call_of(**fields: Any) -> ChatCall:
    return ChatCompletions().parse(json.dumps(HI | fields).encode())


def body_of(kind: Any, call: ChatCall, without: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """What the engine is asked."""
    body = adapter_of(kind, **options).body(call, model="tiny", without=without)
    parsed: dict[str, Any] = json.loads(body)
    return parsed


def described_whole(kind: Any, data: bytes, **fields: Any) -> tuple[Any, Any]:
    """The answer, and what a dialect sees."""
    answer = Answer()
    reading = adapter_of(kind).reading(call_of(**fields), answer)
    shown = reading.whole(EngineObject.parse(data))
    return answer_of(answer), shown_of(shown)


def described_stream(kind: Any, parts: Sequence[bytes], **fields: Any) -> tuple[Any, list[Any]]:
    """The answer, and the chunks that a dialect sees."""
    answer, shown = Answer(), []
    reading = adapter_of(kind).reading(call_of(stream=True, **fields), answer)
    parser = SseParser()
    for part in parts:
        for data in parser.feed(part):
            if data != b"[DONE]":
                chunk = reading.chunk(EngineObject.parse(data))
                if chunk is not None:
                    shown.append(shown_of(chunk))
    return answer_of(answer), shown


def shown_of(part: EngineObject) -> dict[str, Any]:
    fields = {name: json.loads(bytes(raw)) for name, raw in part.fields.items()}
    choices = [{name: json.loads(bytes(raw)) for name, raw in choice.items()} for choice in part.choices]
    return fields | {"choices": choices}


def answer_of(answer: Answer) -> dict[str, Any]:
    return {
        "request_id": answer.request_id,
        "model": answer.model,
        "prompt_ids": answer.prompt_ids,
        "prompt_tokens": answer.prompt_tokens,
        "response_tokens": answer.response_tokens,
        "cached_tokens": answer.cached_tokens,
        "versions": [answer.version_start, answer.version_end],
        "choices": [
            {
                "index": choice.index,
                "ids": choice.ids,
                "logprobs": choice.logprobs,
                "finish_reason": choice.finish_reason,
                "message": None if choice.message is None else json.loads(bytes(choice.message)),
            }
            for choice in answer.choices.values()
        ],
    }
