"""SGLang's text completions: the ids it gives, whole and streamed, under the names it uses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects import Completions, Generate
from gateway.engine import Answer, EngineObject
from gateway.engines.completions import CompletionsAdapter

HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "reasoning_tokens": 0}


def choice(text: str, ids: list[int], reason: str | None, **fields: Any) -> dict[str, Any]:
    logprobs = {"text_offset": [], "token_logprobs": [-0.5] * len(ids), "tokens": [], "top_logprobs": []}
    base = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason, "token_ids": ids}
    return base | {"matched_stop": 151645 if reason else None} | fields


WHOLE = [
    {
        **HEAD,
        "choices": [choice("Hello", [10, 151645], "stop", prompt_token_ids=[1, 2, 3])],
        "usage": USAGE,
        "metadata": {"weight_version": "7"},
    }
]
STREAM = [
    {**HEAD, "choices": [choice("Hel", [10], None, prompt_token_ids=[1, 2, 3])], "usage": None},
    {**HEAD, "choices": [choice("lo", [151645], "stop")], "usage": None},
    {**HEAD, "choices": [], "usage": USAGE},
]


@pytest.mark.parametrize("stream", [False, True])
def test_ids_logprobs_and_version_are_sglangs_own(stream: bool) -> None:
    call = Completions().parse(json.dumps({"prompt": "hi", "stream": stream}).encode())
    adapter, answer = CompletionsAdapter(), Answer()
    assert json.loads(adapter.body(call, model="tiny"))["return_token_ids"] is True
    reading = adapter.reading(call, answer)
    for part in map(json.dumps, STREAM if stream else WHOLE):
        take = reading.chunk if stream else reading.whole
        take(EngineObject.parse(part.encode()))
    gathered = answer.choices[0]
    assert (answer.prompt_ids, gathered.ids, gathered.logprobs) == ([1, 2, 3], [10, 151645], [-0.5, -0.5])
    assert (gathered.content, gathered.finish_reason, gathered.end_id) == ("Hello", "stop", 151645)
    assert (answer.prompt_tokens, answer.response_tokens) == (3, 2)
    assert answer.version_end == (None if stream else 7)


def test_generate_gives_sglangs_ids() -> None:
    dialect = Generate()
    call = dialect.parse(b'{"prompt_ids": [1, 2, 3], "sampling_params": {"max_tokens": 5}}')
    reply = json.loads(dialect.reply(call, EngineObject.parse(json.dumps(WHOLE[0]).encode())))
    assert reply == {"token_ids": [10, 151645], "log_probs": [-0.5, -0.5], "stop_reason": "stop"}
