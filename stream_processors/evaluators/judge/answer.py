"""What a judge must answer, and whether it did. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from stream_processors.evaluators.kinds import Judge

_MAX_REASON_CHARS = 2_000


class UnusableAnswer(Exception):
    """The text is not the object that was asked for; says what is wrong with it."""


class JudgeAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole answer."""

    score: float
    reason: str


def answer_schema(table: Judge) -> dict[str, Any]:
    """The JSON schema of the answer."""
    return {
        "type": "object",
        "properties": {
            "score": {"type": "number", "minimum": table.min, "maximum": table.max},
            "reason": {"type": "string"},
        },
        "required": ["score", "reason"],
        "additionalProperties": False,
    }


def instruction(table: Judge) -> str:
    """What is asked for, in words."""
    return (
        'Answer with one JSON object and nothing else: {"score": number, "reason": string}. '
        f"The score is from {table.min:g} to {table.max:g}."
    )


def read_answer(text: str, table: Judge) -> JudgeAnswer:
    """The answer in `text`, which may stand in a code fence or behind a model's thoughts.

    Raises `UnusableAnswer` unless it satisfies `answer_schema`.
    """
    spoken = text.rpartition("</think>")[2]
    begin, end = spoken.find("{"), spoken.rfind("}")
    if begin < 0 or end < begin:
        raise UnusableAnswer("there is no JSON object in it")
    try:
        answer = msgspec.json.decode(spoken[begin : end + 1], type=JudgeAnswer)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
        raise UnusableAnswer(str(exc)) from exc
    if not table.min <= answer.score <= table.max:
        raise UnusableAnswer(f"score {answer.score:g} is not from {table.min:g} to {table.max:g}")
    return msgspec.structs.replace(answer, reason=answer.reason[:_MAX_REASON_CHARS])
