"""The agent's tool: exact arithmetic on + - * / and parentheses. Nothing else is evaluated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression with + - * / and parentheses.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "for example 12*4"}},
            "required": ["expression"],
        },
    },
}
"""How the tool is described to the model."""

_MAX_CHARS = 200
_MAX_DIGITS = 30
_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class NotArithmetic(ValueError):
    """The expression is not one; the message is for the model."""


def calculate(expression: str) -> str:
    """The value, as a whole number or a decimal of up to six places. Raises `NotArithmetic`."""
    if len(expression) > _MAX_CHARS:
        raise NotArithmetic(f"the expression is longer than {_MAX_CHARS} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as exc:
        message = str(exc) if isinstance(exc, NotArithmetic) else "it does not parse"
        raise NotArithmetic(f"{expression!r}: {message}") from exc
    except ZeroDivisionError as exc:
        raise NotArithmetic(f"{expression!r}: division by zero") from exc
    if abs(value) >= 10**_MAX_DIGITS:
        raise NotArithmetic(f"{expression!r}: the result has more than {_MAX_DIGITS} digits")
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.6f}".rstrip("0")


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and (apply := _BINARY.get(type(node.op))):
        return apply(_value(node.left), _value(node.right))
    raise NotArithmetic("only numbers, + - * / and parentheses are allowed")
