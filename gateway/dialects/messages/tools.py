"""Tools and tool choice, as chat completions has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.dialects.messages.wire import Tool, ToolChoice, invalid

_RUN_BY_CLIENT = ("bash_", "text_editor_", "computer_", "memory_", "browser_")
"""Tools that the client runs but whose schema only Anthropic's models know."""


def functions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """One function per tool, in order. Tools that Anthropic's servers run are left out."""
    found: list[dict[str, Any]] = []
    for place, tool in enumerate(tools):
        schema = bytes(tool.input_schema)
        if schema == b"null":
            if tool.type in {None, "custom"}:
                raise invalid(f"tools.{place}.input_schema", "is missing: send a JSON schema")
            if tool.type.startswith(_RUN_BY_CLIENT):
                raise invalid(
                    f"tools.{place}.type",
                    f"is {tool.type}, which only Anthropic's models know: send it with an `input_schema`",
                )
            continue
        if not tool.name:
            raise invalid(f"tools.{place}.name", "is missing")
        if not schema.startswith(b"{"):
            raise invalid(f"tools.{place}.input_schema", "must be a JSON schema (an object)")
        function: dict[str, Any] = {"name": tool.name}
        if tool.description is not None:
            function["description"] = tool.description
        function["parameters"] = tool.input_schema
        if tool.strict is not None:
            function["strict"] = tool.strict
        found.append({"type": "function", "function": function})
    return found


def choice_fields(choice: ToolChoice | None, names: Sequence[str]) -> dict[str, msgspec.Raw]:
    """`tool_choice` and `parallel_tool_calls` for the engine, which takes neither without tools."""
    if choice is None:
        return {}
    chosen: Any
    match choice.type:
        case "auto" | "none":
            chosen = choice.type
        case "any":
            chosen = "required"
        case "tool":
            if choice.name not in names:
                raise invalid(
                    "tool_choice.name", f"is {choice.name!r}, which is not among the functions in `tools`"
                )
            chosen = {"type": "function", "function": {"name": choice.name}}
        case other:
            raise invalid("tool_choice.type", f"is {other!r}: send auto, any, tool or none")
    if not names:
        if choice.type == "any":
            raise invalid("tool_choice", "asks for a tool call, but `tools` has no function to call")
        return {}
    fields = {"tool_choice": msgspec.Raw(msgspec.json.encode(chosen))}
    if choice.disable_parallel_tool_use and choice.type != "none":
        fields["parallel_tool_calls"] = msgspec.Raw(b"false")
    return fields
