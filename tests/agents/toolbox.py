"""How to use the tools that real clients offer. Pure: a tool's schema in, its arguments out.

Arguments come in an order and spacing of a model's own, not the schema's: clients that re-serialise
them on the way back are found out by it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.agents.task import Task
from tests.support.engine.sampling import Use

WRITERS = ("write", "write_file", "create_file")
EDITORS = ("edit", "edit_file", "str_replace")
APPENDERS = ("append_file",)
PATCHERS = ("apply_patch",)
SHELLS = ("bash", "exec_command", "exec", "shell_command", "shell", "run_shell_command", "local_shell")

_PATHS = ("file_path", "filePath", "path", "filename")
_CONTENTS = ("content", "contents", "file_text", "text")
_COMMANDS = ("command", "cmd", "script")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function tool as offered in a request."""

    name: str
    properties: Mapping[str, Mapping[str, Any]]
    required: frozenset[str]

    @property
    def kind(self) -> str:
        """Its name in lower case, without a namespace."""
        return self.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1].lower()

    def first_of(self, names: Sequence[str]) -> str:
        """The first of `names` that is a parameter."""
        return next((name for name in names if name in self.properties), names[0])


def tools_of(body: Mapping[str, Any]) -> list[Tool]:
    """The function tools offered in a chat completions request."""
    tools = []
    for offered in body.get("tools") or []:
        function = offered.get("function") or {}
        schema = function.get("parameters") or {}
        tools.append(
            Tool(
                name=str(function.get("name", "")),
                properties=schema.get("properties") or {},
                required=frozenset(schema.get("required") or ()),
            )
        )
    return tools


def create(tools: Sequence[Tool], task: Task) -> Use | None:
    """A call that puts the first line into the file."""
    text = f"{task.first}\n"
    return _use(
        tools,
        (WRITERS, lambda tool: {tool.first_of(_CONTENTS): text, tool.first_of(_PATHS): task.path}),
        (PATCHERS, lambda tool: _patch(tool, f"*** Add File: {task.path}\n+{task.first}")),
        (SHELLS, lambda tool: _shell(tool, f"printf '%s\\n' {shlex.quote(task.first)} > {task.path}")),
    )


def append(tools: Sequence[Tool], task: Task) -> Use | None:
    """A call that puts the second line below the first."""
    change = f"*** Update File: {task.path}\n@@\n {task.first}\n+{task.second}"
    return _use(
        tools,
        (EDITORS, lambda tool: _edit(tool, task)),
        (
            APPENDERS,
            lambda tool: {tool.first_of(_CONTENTS): f"{task.second}\n", tool.first_of(_PATHS): task.path},
        ),
        (PATCHERS, lambda tool: _patch(tool, change)),
        (SHELLS, lambda tool: _shell(tool, f"printf '%s\\n' {shlex.quote(task.second)} >> {task.path}")),
    )


def look(tools: Sequence[Tool], task: Task, *, directory: str) -> list[Use]:
    """Two calls at once that show the file; none where there is no shell."""
    uses = (run(tools, f"cd {directory} && cat {task.path}"), run(tools, f"wc -l {task.path}"))
    return [use for use in uses if use]


def run(tools: Sequence[Tool], command: str) -> Use | None:
    """A call that runs a shell command."""
    return _use(tools, (SHELLS, lambda tool: _shell(tool, command)))


def _use(tools: Sequence[Tool], *ways: tuple[Sequence[str], Callable[[Tool], dict[str, Any]]]) -> Use | None:
    by_kind = {tool.kind: tool for tool in reversed(tools)}
    for kinds, arguments in ways:
        tool = next((by_kind[kind] for kind in kinds if kind in by_kind), None)
        if tool is not None:
            filled = arguments(tool)
            for name in sorted(tool.required - filled.keys()):
                filled[name] = _filler(tool.properties.get(name, {}))
            return Use(tool.name, json.dumps(filled, ensure_ascii=False))
    return None


def _filler(schema: Mapping[str, Any]) -> Any:
    fillers: dict[str, Any] = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}
    return fillers.get(str(schema.get("type")), "a step of the task")


def _edit(tool: Tool, task: Task) -> dict[str, Any]:
    old, new = f"{task.first}\n", f"{task.first}\n{task.second}\n"
    path = tool.first_of(_PATHS)
    if "edits" in tool.properties:
        return {"edits": [{"newText": new, "oldText": old}], path: task.path}
    new_name = tool.first_of(("new_string", "newString", "new_str", "newText"))
    return {
        new_name: new,
        tool.first_of(("old_string", "oldString", "old_str", "oldText")): old,
        path: task.path,
    }


def _patch(tool: Tool, change: str) -> dict[str, Any]:
    return {tool.first_of(("input", "patch", "patchText")): f"*** Begin Patch\n{change}\n*** End Patch\n"}


def _shell(tool: Tool, command: str) -> dict[str, Any]:
    name = tool.first_of(_COMMANDS)
    if tool.properties.get(name, {}).get("type") == "array":
        return {name: ["bash", "-lc", command]}
    return {name: command}
