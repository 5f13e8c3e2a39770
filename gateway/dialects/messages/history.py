"""System prompt and turns as chat messages.

The same turn gives the same bytes in every later request: nothing here depends on where a turn
stands, on cache marks, or on whether content came as text or as blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from gateway.dialects.messages.content import BETWEEN_TEXTS, content_of, named, parts_of, result_of, text_of
from gateway.dialects.messages.wire import Block, Message, invalid

ChatMessage = dict[str, Any]

_BILLING_HEADER = "x-anthropic-billing-header"
"""Begins a line that Claude Code puts before its system prompt; it differs per conversation."""


def system_text(system: str | list[Block]) -> str:
    """The system prompt as one text, without the billing line."""
    texts = [system] if isinstance(system, str) else _texts(system, "system")
    return BETWEEN_TEXTS.join(text for text in map(_without_billing, texts) if text)


def chat_messages(
    system: str, turns: Sequence[Message], *, inner_system: Literal["system", "user"] = "system"
) -> list[ChatMessage]:
    """Chat messages of a conversation. System turns before all others join the system prompt.

    `inner_system` is the role of later ones: some chat templates take a system message only at the start.
    """
    leading = [system] if system else []
    messages: list[ChatMessage] = []
    for place, turn in enumerate(turns):
        field = f"messages.{place}.content"
        match turn.role:
            case "user":
                messages += _user(turn.content, field, messages)
            case "assistant":
                messages.append(_assistant(turn.content, field))
            case "system":
                text = turn.content
                if not isinstance(text, str):
                    text = BETWEEN_TEXTS.join(_texts(text, field))
                if messages:
                    messages.append({"role": inner_system, "content": text})
                else:
                    leading.append(text)
            case other:
                raise invalid(f"messages.{place}.role", f"is {other!r}: send user, assistant or system")
    if leading:
        messages.insert(0, {"role": "system", "content": BETWEEN_TEXTS.join(leading)})
    return messages


def _user(content: str | list[Block], field: str, before: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Tool results as tool messages, then all else as one user message, images of results first."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    results: list[ChatMessage] = []
    images: list[dict[str, Any]] = []
    others: list[tuple[str, Block]] = []
    for here, block in named(content, field):
        if block.type != "tool_result":
            others.append((here, block))
            continue
        if not block.tool_use_id:
            raise invalid(f"{here}.tool_use_id", "is missing")
        text, pictures = result_of(block, here)
        results.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text})
        images += pictures
    parts = images + parts_of(others)
    user = [{"role": "user", "content": content_of(parts)}] if parts or not results else []
    return [*_in_call_order(results, before), *user]


def _in_call_order(results: list[ChatMessage], before: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Results in the order of the calls they answer: clients send them as they complete, and most
    chat templates render them without ids.
    """
    calls = before[-1].get("tool_calls", ()) if before else ()
    order = {call["id"]: place for place, call in enumerate(calls)}
    return sorted(results, key=lambda result: order.get(result["tool_call_id"], len(order)))


def _assistant(content: str | list[Block], field: str) -> ChatMessage:
    """The turn in the very form in which a sampled one is captured (`gateway.engine.Choice.message`)."""
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    text = reasoning = ""
    calls: list[dict[str, Any]] = []
    for here, block in named(content, field):
        match block.type:
            case "thinking":
                reasoning += block.thinking or ""
            case "redacted_thinking":
                # Encrypted for Anthropic's servers alone: there is no text to give.
                pass
            case "tool_use":
                calls.append(_call(block, here))
            case _:
                text += text_of(block, here)
    message: ChatMessage = {"role": "assistant", "content": text}
    if calls:
        message["content"] = text or None
        message["tool_calls"] = calls
    if reasoning:
        message["reasoning"] = reasoning
    return message


def _call(block: Block, field: str) -> dict[str, Any]:
    if not block.id or not block.name:
        raise invalid(f"{field}.{'name' if block.id else 'id'}", "is missing")
    arguments = msgspec.json.format(bytes(block.input), indent=-1).decode()
    if not arguments.startswith("{"):
        raise invalid(f"{field}.input", "must be an object")
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _texts(blocks: Sequence[Block], field: str) -> list[str]:
    return [text_of(block, here) for here, block in named(blocks, field)]


def _without_billing(text: str) -> str:
    return text.partition("\n")[2] if text.startswith(_BILLING_HEADER) else text
