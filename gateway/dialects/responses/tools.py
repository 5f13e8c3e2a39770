"""Tools and tool choice: flat functions for the engine, and the way back to the client's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.dialects.responses.call import ToolOrigin
from gateway.dialects.responses.fields import field_error, invalid, read

_MODES = frozenset({"auto", "none", "required"})


class _Format(msgspec.Struct):
    type: str = "text"
    syntax: str | None = None
    definition: str | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None
    format: _Format | None = None
    tools: list[_Tool] | None = None


class _Choice(msgspec.Struct):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str = "auto"
    tools: list[_Choice] = []


@dataclass(slots=True)
class Tools:
    """The tools of a request, by the names that the engine is given."""

    chat: dict[str, msgspec.Raw] = field(default_factory=dict)
    """JSON of each chat completions tool, in the client's order."""
    origins: dict[str, ToolOrigin] = field(default_factory=dict)

    def only(self, names: Sequence[str]) -> Tools:
        """Those in `names`, still in the client's order."""
        return Tools(
            {name: tool for name, tool in self.chat.items() if name in names},
            {name: origin for name, origin in self.origins.items() if name in names},
        )

    @property
    def json(self) -> bytes | None:
        """The tool list for the engine; None where it is empty."""
        return msgspec.json.encode(list(self.chat.values())) if self.chat else None


def flat_name(namespace: str | None, name: str) -> str:
    """What the engine calls a tool."""
    return f"{namespace}__{name}" if namespace else name


def read_tools(fields: Mapping[str, msgspec.Raw]) -> Tools:
    """The tools that the client itself runs; those that a provider would host are left out."""
    tools = Tools()
    _collect(tools, read(fields, "tools", list[_Tool]) or [], None, "tools")
    return tools


def _collect(into: Tools, tools: Sequence[_Tool], namespace: str | None, where: str) -> None:
    for place, tool in enumerate(tools):
        here = f"{where}[{place}]"
        if tool.type == "namespace" and namespace is None:
            _collect(into, tool.tools or [], _name(tool, here), f"{here}.tools")
            continue
        if tool.type == "function":
            origin = ToolOrigin(_name(tool, here), namespace)
        elif tool.type == "custom":
            origin = ToolOrigin(_name(tool, here), namespace, "custom")
        else:
            continue
        flat = flat_name(namespace, origin.name)
        if flat in into.origins:
            raise invalid(f"`{here}.name`: the engine would know two tools as {flat[:140]!r}: rename one")
        into.origins[flat] = origin
        function = _custom(flat, tool) if origin.kind == "custom" else _function(flat, tool)
        into.chat[flat] = msgspec.Raw(msgspec.json.encode({"type": "function", "function": function}))


def _name(tool: _Tool, where: str) -> str:
    if not tool.name:
        raise invalid(f"`{where}.name` is missing: every {tool.type} tool needs one")
    return tool.name


def _function(flat: str, tool: _Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": flat}
    if tool.description is not None:
        function["description"] = tool.description
    if bytes(tool.parameters) != b"null":
        function["parameters"] = tool.parameters
    if tool.strict:
        function["strict"] = True
    return function


def _custom(flat: str, tool: _Tool) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if tool.format is not None and tool.format.definition:
        kind = tool.format.syntax or "given"
        text["description"] = f"Plain text that matches this {kind} grammar:\n{tool.format.definition}"
    function: dict[str, Any] = {"name": flat}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }
    return function


def choose(fields: Mapping[str, msgspec.Raw], tools: Tools) -> tuple[Tools, Any]:
    """The tools that may be used, and chat completions' `tool_choice`; None to leave it out."""
    raw = fields.get("tool_choice")
    if raw is None or bytes(raw) == b"null":
        return tools, None
    try:
        wanted = msgspec.json.decode(raw, type=str | _Choice)
    except msgspec.MsgspecError as exc:
        raise invalid(field_error("tool_choice", exc)) from exc
    if isinstance(wanted, str):
        return tools, _mode(wanted, tools)
    if wanted.type == "allowed_tools":
        allowed = tools.only([flat_name(choice.namespace, choice.name or "") for choice in wanted.tools])
        return allowed, _mode(wanted.mode, allowed)
    if wanted.type not in {"function", "custom"}:
        raise invalid(
            f"`tool_choice.type` is {wanted.type[:64]!r}: this gateway hosts no tools, "
            "choose a function or custom tool"
        )
    flat = flat_name(wanted.namespace, wanted.name or "")
    if flat not in tools.chat:
        raise invalid(f"`tool_choice.name`: {flat[:140]!r} is not among the tools")
    return tools, {"type": "function", "function": {"name": flat}}


def _mode(mode: str, tools: Tools) -> str | None:
    if mode not in _MODES:
        raise invalid("`tool_choice` must be auto, none, required, or name a tool")
    if tools.chat:
        return mode
    if mode == "required":
        raise invalid("`tool_choice` is required, but there are no tools that the client runs")
    return None
