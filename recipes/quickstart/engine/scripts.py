"""What the model might say next: a few scripts with weights, each a line of tokens to hit or miss."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from decimal import Decimal, DivisionByZero, InvalidOperation
from typing import Literal

from recipes.quickstart.engine.reading import Conversation, Operation, Problem
from recipes.quickstart.engine.template import call_text
from recipes.quickstart.engine.vocabulary import CALL_CLOSE, CALL_OPEN, IM_END, encode

Kind = Literal["literal", "copied", "recalled"]
"""How sure the model is of a token: of its own words, of what it copies, of mental arithmetic."""

_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_SIGNS = "+-*/"
_VERBS = {"+": "add", "-": "subtract", "*": "multiply by", "/": "divide by"}


@dataclass(frozen=True, slots=True)
class Script:
    """A reply the model has in mind, and how likely it is to choose it."""

    weight: float
    tokens: tuple[tuple[int, Kind], ...]


def scripts_for(conversation: Conversation) -> list[Script]:
    """The scripts that fit a conversation; weights are positive and need not sum to one."""
    problem = conversation.problem
    if problem is None:
        return [_say(1.0, "I can only solve arithmetic word problems.")]
    if conversation.tool is None:
        return [
            _answer(0.7, _solve(problem), "recalled"),
            _answer(0.3, _solve(problem), "recalled", lead="Let me think. "),
        ]
    values = conversation.values
    value = values[-1] if values else problem.start
    if len(values) >= len(problem.operations):
        return _closing(conversation, problem, value)
    step = problem.operations[len(values)]
    failed = bool(conversation.results) and conversation.results[-1] not in values
    lead = "That did not work, so once more: " if failed else f"Step {len(values) + 1}: "
    wrong = Operation(_SIGNS[(_SIGNS.index(step.operator) + 1) % len(_SIGNS)], step.operand)
    return [
        _call(0.62, conversation, value, step, say=f"{lead}{_VERBS[step.operator]} {step.operand}.\n"),
        _call(0.31, conversation, value, step),
        _call(0.04, conversation, value, wrong),
        _answer(0.03, _solve(problem), "recalled"),
    ]


def _closing(conversation: Conversation, problem: Problem, value: str) -> list[Script]:
    checks = len(conversation.results) - len(problem.operations)
    # Small models that begin to double-check tend to stay in the loop.
    doubt = 0.05 if checks <= 0 else 0.85
    none = Operation("+", "0")
    return [
        _answer((1 - doubt) * 0.7, value, "copied"),
        _answer((1 - doubt) * 0.3, value, "copied", lead="Done. "),
        _call(doubt, conversation, value, none, say="Wait, let me check.\n"),
    ]


def _solve(problem: Problem) -> str:
    value = Decimal(problem.start)
    for step in problem.operations:
        try:
            value = _APPLY[step.operator](value, Decimal(step.operand))
        except (DivisionByZero, InvalidOperation):
            return "0"
    return format(value.normalize(), "f")


def _tokens(text: str, kind: Kind) -> tuple[tuple[int, Kind], ...]:
    return tuple((token, kind) for token in encode(text))


def _say(weight: float, text: str) -> Script:
    return Script(weight, (*_tokens(text, "literal"), (IM_END, "literal")))


def _answer(weight: float, value: str, kind: Kind, *, lead: str = "") -> Script:
    head, tail = _tokens(f"{lead}The answer is ", "literal"), _tokens(".", "literal")
    return Script(weight, (*head, *_tokens(value, kind), *tail, (IM_END, "literal")))


def _call(weight: float, conversation: Conversation, value: str, step: Operation, *, say: str = "") -> Script:
    mark = "\0"
    arguments = json.dumps({conversation.parameter: mark}).replace(json.dumps(mark)[1:-1], mark)
    before, _, after = call_text(conversation.tool or "", arguments).partition(mark)
    return Script(
        weight,
        (
            *_tokens(say, "literal"),
            (CALL_OPEN, "literal"),
            *_tokens(before, "literal"),
            *_tokens(f"{value}{step.operator}{step.operand}", "copied"),
            *_tokens(after, "literal"),
            (CALL_CLOSE, "literal"),
            (IM_END, "literal"),
        ),
    )
