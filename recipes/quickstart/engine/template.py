"""The chat template: messages and tools to ids, in the manner of Hermes and Qwen.

An assistant turn renders to the ids it was sampled as, wherever the client sends it back
unchanged; so the next prompt begins with the last prompt and its response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recipes.quickstart.engine.vocabulary import (
    CALL_CLOSE,
    CALL_OPEN,
    IM_END,
    IM_START,
    RESPONSE_CLOSE,
    RESPONSE_OPEN,
    encode,
    encode_reply,
)

Message = Mapping[str, Any]

DEFAULT_SYSTEM = "You are a helpful assistant."
TOOLS_OPEN, TOOLS_CLOSE = "<tools>", "</tools>"


def render(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
    """Prompt ids, ending where the assistant is to speak. Messages must have been checked."""
    lead = [text_of(m) for m in messages if m["role"] in {"system", "developer"}]
    rest = [m for m in messages if m["role"] not in {"system", "developer"}]
    ids = _turn("system", encode("\n\n".join(lead) or DEFAULT_SYSTEM) + _tools(tools))
    position = 0
    while position < len(rest):
        message = rest[position]
        if message["role"] == "tool":
            responses: list[int] = []
            while position < len(rest) and rest[position]["role"] == "tool":
                responses += [RESPONSE_OPEN, *encode(f"\n{text_of(rest[position])}\n"), RESPONSE_CLOSE]
                position += 1
            ids += _turn("user", responses)
            continue
        body = _assistant(message) if message["role"] == "assistant" else encode(text_of(message))
        ids += _turn(message["role"], body)
        position += 1
    return [*ids, IM_START, *encode("assistant\n")]


def text_of(message: Message) -> str:
    """A message's text; text parts are joined by newlines."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content)


def call_text(name: str, arguments: str) -> str:
    """What stands between the tool-call marks. `arguments` is JSON and is kept as it is."""
    return f'\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n'


def _turn(role: str, body: list[int]) -> list[int]:
    return [IM_START, *encode(f"{role}\n"), *body, IM_END, *encode("\n")]


def _tools(tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
    if not tools:
        return []
    listed = "\n".join(json.dumps(tool) for tool in tools)
    return encode(
        f"\n\n# Tools\n\nYou may call these functions:\n{TOOLS_OPEN}\n{listed}\n{TOOLS_CLOSE}\n\n"
        'A call is {"name": …, "arguments": …} between tool-call marks.'
    )


def _assistant(message: Message) -> list[int]:
    ids = encode_reply(text_of(message))
    for call in message.get("tool_calls") or []:
        function = call["function"]
        ids += [CALL_OPEN, *encode(call_text(function["name"], function["arguments"])), CALL_CLOSE]
    return ids
