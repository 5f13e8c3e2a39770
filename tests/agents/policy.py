"""What the scripted model says next. Pure: a chat completions request in, a turn out."""

from __future__ import annotations

import json
import os.path
from collections.abc import Mapping, Sequence
from typing import Any

from tests.agents import toolbox
from tests.agents.task import Task
from tests.support.engine.sampling import Turn
from tests.support.engine.tokens import text_of

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""mini-swe-agent's prompt asks for this as the last command."""


def next_turn(body: Mapping[str, Any], *, reasoning: bool) -> Turn:
    """The reply to a request: a step of the task where one is told and tools are offered."""
    messages = body.get("messages") or []
    told = "\n".join(text_of(m.get("content")) for m in messages if m.get("role") in {"user", "system"})
    task = Task.find(told)
    tools = toolbox.tools_of(body)
    steps = _steps(tools, task, told) if task else []
    if not steps or body.get("tool_choice") == "none":
        return Turn("side", _side_text(body))
    done = len([m for m in messages if m.get("role") == "assistant" and m.get("tool_calls")])
    turn = steps[min(done, len(steps) - 1)]
    if not reasoning:
        return turn
    return Turn("turn", turn.text, turn.calls, f"Step {done + 1} of {len(steps)} – that is what comes next.")


def _steps(tools: Sequence[toolbox.Tool], task: Task, told: str) -> list[Turn]:
    create, append = toolbox.create(tools, task), toolbox.append(tools, task)
    if create is None or append is None:
        return []
    steps = [
        Turn("turn", "The file comes first → 1.", [create]),
        Turn("turn", "Now the second line ✓.", [append]),
    ]
    if shown := toolbox.look(tools, task, directory=os.path.dirname(task.path)):
        steps.append(Turn("turn", "Two looks at it.", shown))
    submit = toolbox.run(tools, f"echo {_SUBMIT}") if _SUBMIT in told else None
    return [*steps, Turn("turn", "Both lines are in the file.", [submit] if submit else ())]


def _side_text(body: Mapping[str, Any]) -> str:
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema") or {}
    if fields := schema.get("properties"):
        return json.dumps(dict.fromkeys(fields, "Two lines in a file"))
    return "Two lines in a file"
