"""A rule-based reward: is the last answer the ground truth? Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from agentworld.contract.events import TrajectorySealed
from stream_processors.evaluators.conversation import at_path, last_answer
from stream_processors.evaluators.evaluation import Evaluation, EvaluationFailed
from stream_processors.evaluators.kinds import ExactMatch, reward_name

_MAX_ANSWER_CHARS = 100_000
"""The end of a longer answer is read: expressions may take time that grows faster than the text."""
_SHOWN_CHARS = 200

_NUMBERS = re.compile(
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?:/\d+)?"
)
_MAX_NUMBER_CHARS = 1_000
_UNITS = "$€£% \t\n"


class ExactMatchEvaluator:
    """One `exact_match` table at work."""

    def __init__(self, table: ExactMatch) -> None:
        self._table = table

    async def evaluate(self, sealed: TrajectorySealed) -> Evaluation:
        """`hit` or `miss`, with what was compared. Raises `EvaluationFailed` without a ground truth."""
        table = self._table
        truths = _truths(at_path(sealed.metadata, table.ground_truth), table.ground_truth)
        found = extracted(table, last_answer(sealed)[-_MAX_ANSWER_CHARS:])
        hit = found is not None and any(same(table, found, truth) for truth in truths)
        if found is None:
            reason = f"the answer has nothing for extract = {table.extract}"
        else:
            reason = "the answer matches" if hit else "the answer differs"
        return Evaluation(
            rewards={reward_name(table): table.hit if hit else table.miss},
            reason=reason,
            extra={"answer": None if found is None else found[:_SHOWN_CHARS]},
        )


def extracted(table: ExactMatch, answer: str) -> str | None:
    """The part of the answer that is compared; None where the answer has no such part."""
    text = answer.strip()
    found: str | None = None
    match table.extract:
        case "whole":
            found = text or None
        case "last_line":
            found = text.splitlines()[-1] if text else None
        case "number":
            numbers = _NUMBERS.findall(text)
            found = numbers[-1] if numbers else None
        case "boxed":
            found = _last_boxed(text)
        case "hashes":
            _, mark, behind = text.rpartition("####")
            found = behind.strip().splitlines()[0] if mark and behind.strip() else None
        case "pattern":
            matches = list(re.finditer(table.pattern, text))
            if matches:
                found = matches[-1][1] if matches[-1].re.groups else matches[-1][0]
    return found


def same(table: ExactMatch, answer: str, truth: str) -> bool:
    """Whether the two are equal in the table's sense; what is no number equals no number."""
    if table.compare == "number":
        given, wanted = number(answer), number(truth)
        if given is None or wanted is None:
            return False
        return abs(given - wanted) <= Fraction(table.tolerance)
    given_text, wanted_text = " ".join(answer.split()), " ".join(truth.split())
    if table.ignore_case:
        return given_text.casefold() == wanted_text.casefold()
    return given_text == wanted_text


def number(text: str) -> Fraction | None:
    """The number that `text` is, exactly; thousands' commas, a currency or per cent sign may stand there."""
    plain = text.strip(_UNITS).rstrip(".")
    if len(plain) > _MAX_NUMBER_CHARS or not _NUMBERS.fullmatch(plain):
        return None
    head, _, below = plain.replace(",", "").partition("/")
    divisor = int(below) if below else 1
    return Fraction(head) / divisor if divisor else None


def _truths(value: Any, path: str) -> list[str]:
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not values or not all(isinstance(each, str | int | float) for each in values):
        raise EvaluationFailed(f"the ground truth at {path} is neither text nor a number, nor a list of them")
    return [str(each) for each in values]


def _last_boxed(text: str) -> str | None:
    """What stands in the last `\\boxed{…}` that is closed; braces within it nest."""
    start = text.rfind("\\boxed{")
    while start >= 0:
        depth = 0
        begin = start + len("\\boxed")
        for at in range(begin, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if not depth:
                return text[begin + 1 : at].strip()
        start = text.rfind("\\boxed{", 0, start)
    return None
