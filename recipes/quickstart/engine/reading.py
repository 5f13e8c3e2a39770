"""What the model understands of a prompt: the problem, the tool at hand, what was computed so far.

It sees ids, as any model does, and reads them back through the marks of the chat template.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from recipes.quickstart.engine.template import TOOLS_CLOSE, TOOLS_OPEN
from recipes.quickstart.engine.vocabulary import (
    CALL_CLOSE,
    CALL_OPEN,
    IM_END,
    IM_START,
    RESPONSE_CLOSE,
    RESPONSE_OPEN,
    decode,
    split,
)

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_EXPRESSION = re.compile(r"\d+(?:\.\d+)?(?:\s*[-+*/]\s*\d+(?:\.\d+)?)+")
_RESULT = re.compile(r"-?\d+(?:\.\d+)?")
_CUES = (
    ("*", ("each", "times", "every", "per ")),
    ("/", ("equally", "shares", "splits", "divides", "evenly")),
    ("-", ("gives", "eats", "loses", "sells", "spends", "uses", "away", "fewer", "break", "left behind")),
    ("+", ("more", "buys", "finds", "gets", "receives", "adds", "another", "bakes", "picks", "earns")),
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a calculation: the value so far, `operator`, `operand`."""

    operator: str
    operand: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A calculation: a first number and what happens to it."""

    start: str
    operations: tuple[Operation, ...]


@dataclass(slots=True)
class Conversation:
    """A prompt as read. `results` holds one tool answer per call, in order."""

    problem: Problem | None = None
    tool: str | None = None
    parameter: str = "expression"
    results: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[str]:
        """The tool answers that are numbers."""
        return [result for result in self.results if _RESULT.fullmatch(result)]


def read_problem(text: str) -> Problem | None:
    """The calculation a text asks for: a plain expression, or a story told sentence by sentence."""
    if found := _EXPRESSION.search(text):
        parts = re.split(r"\s*([-+*/])\s*", found.group())
        return Problem(parts[0], tuple(map(Operation, parts[1::2], parts[2::2])))
    start: str | None = None
    operations: list[Operation] = []
    for sentence in re.split(r"(?<=[.?!])\s+", text):
        numbers = _NUMBER.findall(sentence)
        if numbers and start is None:
            start = numbers.pop(0)
        if numbers and (operator := _operator(sentence.lower())):
            operations += [Operation(operator, number) for number in numbers]
    return Problem(start, tuple(operations)) if start and operations else None


def _operator(sentence: str) -> str | None:
    return next((sign for sign, cues in _CUES if any(cue in sentence for cue in cues)), None)


def read(prompt_ids: list[int]) -> Conversation:
    """The conversation behind a prompt's ids; only the last problem counts."""
    conversation = Conversation()
    for turn in split(prompt_ids, IM_START)[1:]:
        body = split(turn, IM_END)[0]
        role, _, text = decode(body).partition("\n")
        if role == "system":
            conversation.tool, conversation.parameter = _calculator(text)
        elif role == "user" and RESPONSE_OPEN in body:
            conversation.results += [
                decode(split(part, RESPONSE_CLOSE)[0]).strip() for part in split(body, RESPONSE_OPEN)[1:]
            ]
        elif role == "user" and (problem := read_problem(text)):
            conversation.problem = problem
            conversation.results.clear()
    return conversation


def calls_in(reply_ids: list[int]) -> list[str]:
    """The text of each tool call in a reply."""
    return [decode(split(part, CALL_CLOSE)[0]) for part in split(reply_ids, CALL_OPEN)[1:]]


def _calculator(system: str) -> tuple[str | None, str]:
    listed = system.partition(TOOLS_OPEN)[2].partition(TOOLS_CLOSE)[0]
    for line in filter(None, listed.splitlines()):
        try:
            function = json.loads(line)["function"]
            properties = list(function["parameters"]["properties"])
        except (ValueError, KeyError, TypeError):
            continue
        if "calc" in str(function.get("name", "")).lower() and properties:
            return function["name"], properties[0]
    return None, "expression"
