"""A ReAct agent: ask the model, run the calculator, go on until it answers or runs out of turns.

It knows nothing of AgentWorld: an OpenAI client is all it gets.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import openai

from recipes.quickstart.calculator import TOOL, NotArithmetic, calculate
from recipes.quickstart.problems import Problem

logger = logging.getLogger(__name__)

SYSTEM = "Solve the problem step by step with the calculator. End with: The answer is N."
_ANSWER = re.compile(r"answer is (-?\d+(?:\.\d+)?)")
_REPEATABLE = {408, 409, 425, 429}


@dataclass(slots=True)
class Attempt:
    """What one rollout did."""

    answer: str | None = None
    turns: int = 0
    answered_ids: list[str] = field(default_factory=list)
    """Completion id of each call that the agent had a whole answer to."""
    failed_calls: int = 0
    """Calls that failed and were repeated."""


class TurnLimit(Exception):
    """The agent used all its turns without an answer."""


class CutShort(Exception):
    """A stream ended without saying that it was over."""


@dataclass(frozen=True, slots=True)
class Agent:
    """How to solve a problem."""

    client: openai.OpenAI
    model: str
    stream: bool
    max_turns: int = 6
    max_tries: int = 5
    """Tries per call; the pauses between them double from `pause_s`."""
    pause_s: float = 0.25

    def solve(self, problem: Problem, attempt: Attempt, *, seed: int) -> None:
        """Fill in `attempt`. Raises `TurnLimit`, or the client's error when a call fails for good."""
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": problem.question},
        ]
        for turn in range(self.max_turns):
            message = self._call(messages, attempt, seed=seed + turn)
            attempt.turns += 1
            messages.append(message)
            if not message.get("tool_calls"):
                found = _ANSWER.findall(message["content"] or "")
                attempt.answer = found[-1] if found else None
                return
            messages += [_run_tool(call) for call in message["tool_calls"]]
        raise TurnLimit(f"no answer within {self.max_turns} turns")

    def _call(self, messages: list[dict[str, Any]], attempt: Attempt, *, seed: int) -> dict[str, Any]:
        pause_s = self.pause_s
        for left in reversed(range(self.max_tries)):
            try:
                completion_id, message = self._call_once(messages, seed)
            except (openai.APIError, CutShort) as exc:
                status = exc.status_code if isinstance(exc, openai.APIStatusError) else None
                final = status is not None and status < 500 and status not in _REPEATABLE
                if final or not left:
                    raise
                attempt.failed_calls += 1
                logger.info("call failed, trying again in %.2g s: %s", pause_s, exc)
                time.sleep(pause_s)
                pause_s *= 2
            else:
                attempt.answered_ids.append(completion_id)
                return message
        raise AssertionError("unreachable")

    def _call_once(self, messages: list[dict[str, Any]], seed: int) -> tuple[str, dict[str, Any]]:
        asked: dict[str, Any] = {"model": self.model, "messages": messages, "tools": [TOOL], "seed": seed}
        if self.stream:
            return _gather(self.client.chat.completions.create(**asked, stream=True))
        reply = self.client.chat.completions.create(**asked)
        return reply.id, reply.choices[0].message.model_dump(
            include={"role", "content", "tool_calls"}, exclude_none=True
        ) | {"content": reply.choices[0].message.content}


def _gather(chunks: Iterable[Any]) -> tuple[str, dict[str, Any]]:
    completion_id, content, finished = "", "", False
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        completion_id = chunk.id or completion_id
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finished = finished or choice.finish_reason is not None
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(
                    part.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                )
                call["id"] += part.id or ""
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    if not finished:
        raise CutShort("the stream ended without a finish_reason")
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return completion_id, message


def _run_tool(call: dict[str, Any]) -> dict[str, Any]:
    try:
        arguments = json.loads(call["function"]["arguments"])
        result = calculate(arguments["expression"])
    except NotArithmetic as exc:
        result = f"error: {exc}"
    except (ValueError, KeyError, TypeError):
        result = 'error: the arguments must be {"expression": "..."}'
    return {"role": "tool", "tool_call_id": call["id"], "content": result}
