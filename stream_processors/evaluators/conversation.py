"""What of a sealed trajectory an evaluator reads: its last answer, its messages, its ground truth. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentworld.contract.delta import Prompt
from agentworld.contract.events import SealedStep, TrajectorySealed, raw_json
from agentworld.platform.resolved import expand_each
from stream_processors.evaluators.evaluation import EvaluationFailed

_NOTHING = "(nothing)"


def last_answer(sealed: TrajectorySealed) -> str:
    """The text that the trained branch ends with; empty where there is none, e.g. only a tool call."""
    tip = _tip(sealed)
    raw = raw_json(tip.step.message) if tip is not None else None
    return "" if raw is None else text_of(json.loads(raw))


def transcript(sealed: TrajectorySealed) -> str:
    """The conversation of the trained branch as text, each message under its role.

    Raises `EvaluationFailed` where the last prompt cannot be made whole.
    """
    tip = _tip(sealed)
    if tip is None:
        return _NOTHING
    prompt = expand_each([placed.step for placed in sealed.steps])[tip.step.step_id]
    if not isinstance(prompt, Prompt):
        raise EvaluationFailed(f"the prompt of step {tip.step.step_id} cannot be made whole: {prompt}")
    sampled = raw_json(tip.step.message)
    messages = [*prompt.messages, *([sampled] if sampled is not None else [])]
    return "\n\n".join(_described(json.loads(message)) for message in messages)


def text_of(message: Any) -> str:
    """The text of a chat message; parts of other kinds are left out."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    # Half of a surrogate pair may stand in a message and in no event.
    return content.encode(errors="replace").decode() if isinstance(content, str) else ""


def at_path(metadata: Mapping[str, Any], path: str) -> Any:
    """The value at `a.b.c`. Raises `EvaluationFailed` that names the path where there is none."""
    found: Any = metadata
    for name in path.split("."):
        # Registrations of verl's rows may carry inner objects as JSON text.
        if isinstance(found, str) and found.startswith("{"):
            found = _parsed(found)
        if not isinstance(found, Mapping) or found.get(name) is None:
            raise EvaluationFailed(f"the registration's metadata has nothing at {path}")
        found = found[name]
    return found


def shortened(text: str, max_chars: int) -> str:
    """`text`, or its beginning and end with a word on what was left out between them."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[len(text) - half :]}"


def _tip(sealed: TrajectorySealed) -> SealedStep | None:
    tip_id = sealed.trained_branch.tip_step_id if sealed.trained_branch else None
    return next((placed for placed in sealed.steps if placed.step.step_id == tip_id), None)


def _described(message: Any) -> str:
    if not isinstance(message, Mapping):
        return json.dumps(message, ensure_ascii=False)
    calls = message.get("tool_calls") or []
    lines = [f"[{message.get('role', 'unknown')}]"]
    if text := text_of(message):
        lines.append(text)
    lines += [f"calls {json.dumps(call, ensure_ascii=False)}" for call in calls]
    return "\n".join(lines)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
