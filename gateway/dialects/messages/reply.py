"""An engine's whole reply as a Message."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.dialects.messages.call import MessagesCall, Signature
from gateway.dialects.messages.engine_part import Ending, part_of
from gateway.engine import EngineObject


def message_body(call: MessagesCall, engine: EngineObject) -> bytes:
    """JSON of the Message: thinking, text, tool calls. Blank thinking and blank text are not shown."""
    ending = Ending(call)
    ending.add(engine)
    part = part_of(engine, "message")
    content: list[dict[str, Any]] = []
    if part.thinking.strip():
        signature = Signature()
        signature.add(part.thinking)
        content.append({"type": "thinking", "thinking": part.thinking, "signature": str(signature)})
    if part.text.strip():
        content.append({"type": "text", "text": part.text})
    for place, tool in enumerate(part.tool_calls or ()):
        function = tool.function
        content.append(
            {
                "type": "tool_use",
                "id": call.tool_id(place if tool.index is None else tool.index),
                "name": (function.name if function else None) or "",
                "input": tool_input((function.arguments if function else None) or ""),
            }
        )
        ending.calls_tools = True
    return msgspec.json.encode(ending.message(content, ended=True))


def tool_input(arguments: str) -> msgspec.Raw:
    """Sampled arguments as the input object, byte for byte.

    What is no JSON object is wrapped as Claude Code wraps it in its own history.
    """
    if not arguments.strip():
        return msgspec.Raw(b"{}")
    encoded = arguments.encode("utf-8", "replace")
    try:
        msgspec.json.decode(encoded, type=dict[str, Any])
    except msgspec.MsgspecError:
        wrapped = {"__unparsedToolInput": {"raw": encoded.decode(), "len": len(arguments)}}
        return msgspec.Raw(msgspec.json.encode(wrapped))
    return msgspec.Raw(encoded)
