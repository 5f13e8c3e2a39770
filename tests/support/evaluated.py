"""Sealed trajectories to evaluate, and evaluators' tables."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentworld.contract.events import TrainedBranch, TrajectorySealed
from stream_processors.evaluators.kinds import AnyEvaluator, Judge
from tests.support.builders import rollout, sealed

RUBRIC = "Question and conversation:\n{{messages}}\n\nAnswer: {{answer}}\nTruth: {{ground_truth}}"


def finished(
    trajectory_id: str = "t-1",
    answer: Any = "The answer is 42.",
    *,
    truth: Any = "42",
    prompt_id: str = "task-1",
    turns: int = 2,
    **changes: Any,
) -> TrajectorySealed:
    """A sealed rollout whose trained branch ends with `answer`: text, or a whole message."""
    steps = rollout(trajectory_id, prompt_id, turns=turns)
    message = answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}
    steps[-1] = msgspec.structs.replace(steps[-1], message=msgspec.Raw(json.dumps(message).encode()))
    branch = TrainedBranch(tip_step_id=steps[-1].step_id, steps=turns, rule="main", reason="")
    values = {"trained_branch": branch, "metadata": {"reward_model": {"ground_truth": truth}}} | changes
    return sealed(steps, prompt_id=prompt_id, reward=None, **values)


def table(**fields: Any) -> Any:
    """The table as a rules file would give it."""
    return msgspec.convert(fields, AnyEvaluator)


def judge_table(url: str, **fields: Any) -> Judge:
    """A judge that tries again at once."""
    values = {"kind": "judge", "url": url, "model": "judge-7b", "rubric": RUBRIC, "retry_ms": 1} | fields
    found: Judge = table(**values)
    return found
