"""Bytes as tokens, and a chat template over them. Pure.

An assistant turn that comes back unchanged renders to the ids it was sampled as: whether a prompt begins
with the last prompt and its response then depends on the client and the gateway alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
TURN_OPEN, TURN_CLOSE, CALL_OPEN, CALL_CLOSE, RESULT_OPEN, RESULT_CLOSE = range(256, 256 + len(_SPECIALS))
THINK_OPEN, THINK_CLOSE = "<think>\n", "\n</think>\n\n"
_CALL = '\n{{"name": {name}, "arguments": '
_CALL_END = "}\n"


def encode(text: str) -> list[int]:
    """UTF-8 bytes as ids; special tokens are never read from text."""
    return list(text.encode("utf-8", "replace"))


def token_bytes(token_id: int) -> bytes:
    """The bytes a token stands for."""
    return bytes([token_id]) if token_id < 256 else _SPECIALS[token_id - 256].encode()


def call_frame(name: str) -> tuple[list[int], list[int]]:
    """What stands before and after the arguments of a call."""
    return [CALL_OPEN, *encode(_CALL.format(name=json.dumps(name)))], [*encode(_CALL_END), CALL_CLOSE]


def text_of(content: Any) -> str:
    """A message's text; parts are joined by newlines, what is not text stands as its type in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [part if isinstance(part, Mapping) else {"text": str(part)} for part in content]
    return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts)


def render(body: Mapping[str, Any]) -> list[int]:
    """Prompt ids of a chat completions request, ending where the assistant is to speak."""
    ids: list[int] = []
    if tools := body.get("tools"):
        ids += _turn("tools", encode("\n".join(json.dumps(tool) for tool in tools)))
    for message in body["messages"]:
        ids += _turn(str(message.get("role")), _body(message))
    return [*ids, TURN_OPEN, *encode("assistant\n")]


def _turn(role: str, body: Sequence[int]) -> list[int]:
    return [TURN_OPEN, *encode(f"{role}\n"), *body, TURN_CLOSE, *encode("\n")]


def _body(message: Mapping[str, Any]) -> list[int]:
    text = encode(text_of(message.get("content")))
    if message.get("role") == "tool":
        return [RESULT_OPEN, *text, RESULT_CLOSE]
    if message.get("role") != "assistant":
        return text
    thought = message.get("reasoning") or message.get("reasoning_content")
    ids = [*encode(f"{THINK_OPEN}{thought}{THINK_CLOSE}"), *text] if thought else text
    for call in message.get("tool_calls") or []:
        before, after = call_frame(call["function"]["name"])
        ids += [*before, *encode(call["function"]["arguments"]), *after]
    return ids
