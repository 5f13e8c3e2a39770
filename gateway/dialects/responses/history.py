"""Input items to canonical chat messages.

A sampled turn reaches the client as several items (reasoning, message, calls). Sent
back, they are joined to the one message that was captured, in the same bytes, so that
the next prompt extends this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from gateway.dialects.responses.content import chat_content, text_of
from gateway.dialects.responses.fields import invalid
from gateway.dialects.responses.freeform import freeform_arguments
from gateway.dialects.responses.items import Item, Part
from gateway.dialects.responses.reasoning import reasoning_of
from gateway.dialects.responses.tools import flat_name
from gateway.engine import Choice

InnerSystem = Literal["system", "user"]
"""Role of developer and system messages within the conversation."""

_LOCAL_SHELL = "local_shell"
_BLANK_LINE = "\n\n"
_INSTRUCTING = frozenset({"developer", "system"})


def chat_messages(instructions: str | None, items: Sequence[Item], inner_system: InnerSystem) -> list[bytes]:
    """The conversation as JSON of chat messages. Raises `InvalidInput`."""
    history = _History(inner_system)
    texts = [instructions] if instructions else []
    leading = 0
    while leading < len(items) and items[leading].role in _INSTRUCTING and items[leading].type == "message":
        content = chat_content(items[leading].content, f"input[{leading}].content")
        if not isinstance(content, str):
            raise invalid(f"`input[{leading}].content`: instructions must be text alone")
        texts.append(content)
        leading += 1
    if texts:
        history.say("system", _BLANK_LINE.join(texts))
    for place in range(leading, len(items)):
        history.add(items[place], f"input[{place}]")
    messages = history.close()
    if not messages:
        raise invalid("`input` is empty: send at least one message")
    return messages


class _History:
    """Messages so far, and the assistant turn whose items are being gathered."""

    def __init__(self, inner_system: InnerSystem) -> None:
        self._inner_system = inner_system
        self._messages: list[bytes] = []
        self._turn: Choice | None = None

    def say(self, role: str, content: str | list[dict[str, Any]], **more: str) -> None:
        self._end_turn()
        self._messages.append(msgspec.json.encode({"role": role, **more, "content": content}))

    def close(self) -> list[bytes]:
        self._end_turn()
        return self._messages

    def add(self, item: Item, where: str) -> None:
        match item.type:
            case "message":
                self._add_message(item, where)
            case "reasoning":
                if text := reasoning_of(item, where):
                    turn = self._begun()
                    turn.reasoning = (turn.reasoning or "") + text
            case "function_call":
                arguments = _needed(item.arguments, f"{where}.arguments")
                self._add_call(item, arguments, where)
            case "custom_tool_call":
                arguments = freeform_arguments(_needed(item.input, f"{where}.input"))
                self._add_call(item, arguments, where)
            case "local_shell_call":
                item.name = _LOCAL_SHELL
                item.call_id = item.call_id or item.id
                self._add_call(item, _shell_arguments(item, where), where)
            case _:
                item.call_id = item.call_id or item.id
                call_id = _needed(item.call_id, f"{where}.call_id")
                content = chat_content(item.output, f"{where}.output")
                self.say("tool", content, tool_call_id=call_id)

    def _add_message(self, item: Item, where: str) -> None:
        if item.role == "assistant":
            self._add_assistant(item.content, f"{where}.content")
        elif item.role == "user":
            self.say("user", chat_content(item.content, f"{where}.content"))
        elif item.role in _INSTRUCTING:
            self.say(self._inner_system, chat_content(item.content, f"{where}.content"))
        else:
            raise invalid(f"`{where}.role` must be user, assistant, developer or system")

    def _add_assistant(self, content: str | list[Part] | None, where: str) -> None:
        turn = self._begun()
        parts = [Part(text=content)] if isinstance(content, str) else content or []
        for place, part in enumerate(parts):
            if part.type == "refusal":
                turn.refusal = (turn.refusal or "") + (part.refusal or "")
            else:
                turn.content = (turn.content or "") + text_of([part], f"{where}[{place}]", "")

    def _add_call(self, item: Item, arguments: str, where: str) -> None:
        calls = self._begun().tool_calls
        calls[len(calls)] = {
            "id": _needed(item.call_id, f"{where}.call_id"),
            "type": "function",
            "name": flat_name(item.namespace, _needed(item.name, f"{where}.name")),
            "arguments": arguments,
        }

    def _begun(self) -> Choice:
        if self._turn is None:
            # An id marks the turn as sampled, so that even an empty one stays in the history.
            self._turn = Choice(0, ids=[0])
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None and (message := self._turn.message) is not None:
            self._messages.append(bytes(message))
        self._turn = None


def _needed(value: str | None, where: str) -> str:
    if value is None:
        raise invalid(f"`{where}` is missing")
    return value


def _shell_arguments(item: Item, where: str) -> str:
    try:
        action = msgspec.json.decode(item.action, type=dict[str, Any])
    except msgspec.MsgspecError as exc:
        raise invalid(f"`{where}.action` must be an object with the command") from exc
    action.pop("type", None)
    return msgspec.json.encode(action).decode()
