"""Writes the golden replies, in the shapes that the engines were seen to send: `python -m …make_golden`.

`<engine>.<whole|stream>.reply` is what the engine sends, `.answer.json` what the gateway must
gather and `.client.json` what a dialect sees of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.gateway.engines.reading_replies import described_stream, described_whole

GOLDEN = Path(__file__).parent / "golden"
PROMPT = [9707, 11, 1879]
TOKENS = [(785, "Th", -0.25), (1110, "ink", -0.5), (9454, "Yes", -0.125), (151645, "", -0.0625)]
IDS = [token for token, _, _ in TOKENS]
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
TOOL = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"at": "a.txt"}'}}


def logprobs(tokens: list[tuple[int, str, float]]) -> dict[str, Any]:
    return {"content": [{"token": t, "logprob": p, "bytes": None, "top_logprobs": []} for _, t, p in tokens]}


def head(kind: str, name: str = "chat.completion") -> dict[str, Any]:
    return {"id": f"{kind}-1", "object": name, "created": 1, "model": "tiny"}


def whole(kind: str, message: dict[str, Any], choice: dict[str, Any], **top: Any) -> bytes:
    shown = {"index": 0, "message": message, "logprobs": logprobs(TOKENS), "finish_reason": "tool_calls"}
    return json.dumps({**head(kind), "choices": [shown | choice], "usage": USAGE, **top}).encode()


def sse(chunks: list[dict[str, Any]]) -> bytes:
    return "".join(f"data: {json.dumps(c)}\n\n" for c in chunks).encode() + b"data: [DONE]\n\n"


def chunk(
    kind: str, delta: dict[str, Any] | None, *, choice: dict[str, Any] | None = None, **top: Any
) -> Any:
    shown = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **(choice or {})}
    choices = [] if delta is None else [shown]
    return {**head(kind, "chat.completion.chunk"), "choices": choices, **top}


def stream(kind: str, reasoning: str, *, ids: bool) -> list[Any]:
    """Reasoning, a word, a tool call in two parts, the end."""
    tool = TOOL["function"]
    assert isinstance(tool, dict)
    first = {"index": 0, "id": TOOL["id"], "type": "function"}
    deltas: list[dict[str, Any]] = [
        {reasoning: "Think"},
        {"content": "Yes"},
        {"tool_calls": [{**first, "function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": tool["arguments"]}}]},
    ]
    chunks = [chunk(kind, {"role": "assistant", "content": ""})]
    for delta, token in zip(deltas, TOKENS, strict=True):
        choice: dict[str, Any] = {"logprobs": logprobs([token])}
        chunks.append(chunk(kind, delta, choice=choice | ({"token_ids": [token[0]]} if ids else {})))
    return chunks


def vllm(kind: str) -> dict[str, bytes]:
    message = {"role": "assistant", "content": "Yes", "reasoning": "Think", "tool_calls": [TOOL]}
    chunks = stream(kind, "reasoning", ids=True)
    chunks[0]["prompt_token_ids"] = PROMPT
    versions = [7, 8] if kind == "vllm" else []
    end: dict[str, Any] = {"finish_reason": "tool_calls", "stop_reason": None}
    chunks.append(chunk(kind, {}, choice=end, **({"weight_versions": versions} if versions else {})))
    chunks.append(chunk(kind, None, usage=USAGE))
    said: dict[str, Any] = {"weight_versions": versions} if versions else {"weight_version": "7"}
    return {
        "whole": whole(kind, message, {"token_ids": IDS}, prompt_token_ids=PROMPT, **said),
        "stream": sse(chunks),
    }


def sglang() -> dict[str, bytes]:
    message = {"role": "assistant", "content": "Yes", "reasoning_content": "Think", "tool_calls": [TOOL]}
    meta = {
        "output_token_logprobs": [[p, i, None] for i, _, p in TOKENS],
        "weight_version": "7",
        "finish_reason": {"type": "stop", "matched": 151645},
    }
    choice = {
        "logprobs": None,
        "matched_stop": 151645,
        "prompt_token_ids": PROMPT,
        "response_token_ids": IDS,
        "meta_info": meta,
    }
    chunks = stream("sglang", "reasoning_content", ids=False)
    chunks.append(chunk("sglang", {}, choice={"finish_reason": "tool_calls", "matched_stop": None}))
    chunks.append(chunk("sglang", None, sglext={"input_ids": PROMPT, "output_ids": [IDS]}))
    chunks.append(chunk("sglang", None, usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 2}}))
    return {
        "whole": whole("sglang", message, choice, metadata={"weight_version": "7"}),
        "stream": sse(chunks),
    }


def openai() -> dict[str, bytes]:
    message = {"role": "assistant", "content": "Yes", "refusal": None, "tool_calls": [TOOL]}
    chunks = stream("openai", "reasoning_content", ids=False)
    chunks.append(chunk("openai", {}, choice={"finish_reason": "tool_calls"}))
    chunks.append(chunk("openai", None, usage=USAGE))
    return {"whole": whole("openai", message, {}, system_fingerprint="fp_1"), "stream": sse(chunks)}


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    engines = {
        "vllm": vllm("vllm"),
        "policy_server": vllm("policy_server"),
        "sglang": sglang(),
        "openai": openai(),
    }
    for kind, replies in engines.items():
        for form, reply in replies.items():
            (GOLDEN / f"{kind}.{form}.reply").write_bytes(reply)
            answer, shown = (
                described_whole(kind, reply) if form == "whole" else described_stream(kind, [reply])
            )
            for what, value in (("answer", answer), ("client", shown)):
                text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
                (GOLDEN / f"{kind}.{form}.{what}.json").write_text(text)


if __name__ == "__main__":
    main()
