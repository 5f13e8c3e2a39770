"""What an evaluator answers, or why it does not."""

from __future__ import annotations

from typing import Protocol

import msgspec

from agentworld.contract.errors import AgentWorldError
from agentworld.contract.events import Json, TrajectorySealed
from agentworld.contract.events.trajectory_events import Decision


class EvaluationFailed(AgentWorldError):
    """No answer, and trying again now would give none: to the dead-letter topic.

    `reason` is the dead letter's stable code.
    """

    reason = "evaluation_failed"


class BudgetSpent(EvaluationFailed):
    """The run's budget for this evaluator is spent; nothing was asked."""

    reason = "evaluation_budget_spent"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one trajectory."""

    rewards: dict[str, float] = {}
    """By name; finite."""
    decision: Decision | None = None
    """The evaluator's own verdict. None: its thresholds decide, over the reward of its name."""
    reason: str = ""
    extra: Json = {}
    """Travels in the reward's `extra`."""


class Evaluates(Protocol):
    """A ready evaluator."""

    async def evaluate(self, sealed: TrajectorySealed) -> Evaluation:
        """The answer. Raises `EvaluationFailed` that says why there is none."""
        ...
