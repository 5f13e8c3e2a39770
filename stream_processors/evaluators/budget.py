"""What paid evaluators have spent, by evaluator and run; kept in a file over restarts."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import msgspec

from agentworld.contract.errors import InvalidInput
from stream_processors.evaluators.evaluation import BudgetSpent

logger = logging.getLogger(__name__)


class Spent(msgspec.Struct, frozen=True):
    """Calls begun, and tokens as their endpoint counted them."""

    calls: int = 0
    tokens: int = 0


class Budget:
    """One process's ledger. A call is written down before it is made, so no restart forgets it.

    Calls under way count as calls at once, as tokens when they are answered: a token budget can be
    overrun by as much as they use.
    """

    def __init__(self, path: Path | None = None) -> None:
        """`path` None keeps it in memory. Raises `InvalidInput` for a file that cannot be read."""
        self._path = path
        self._spent: dict[str, dict[str, Spent]] = {}
        self._told: set[tuple[str, str]] = set()
        if path is not None and path.exists():
            try:
                self._spent = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Spent]])
            except (OSError, msgspec.MsgspecError) as exc:
                raise InvalidInput(
                    f"what the evaluators have spent cannot be read from {path}: {exc}. Mend or remove it",
                    code="unreadable_budget",
                ) from exc

    def spent(self, evaluator: str, run_id: str) -> Spent:
        """So far."""
        return self._spent.get(evaluator, {}).get(run_id, Spent())

    def begin_call(self, evaluator: str, run_id: str, *, max_calls: int, max_tokens: int) -> None:
        """Count one call. Raises `BudgetSpent` where a limit (0: none) is reached: then make none."""
        so_far = self.spent(evaluator, run_id)
        for limit, used, unit in ((max_calls, so_far.calls, "calls"), (max_tokens, so_far.tokens, "tokens")):
            if limit and used >= limit:
                text = (
                    f"evaluator {evaluator} has spent its budget for run {run_id}: {used} of {limit} {unit}"
                )
                if (evaluator, run_id) not in self._told:
                    self._told.add((evaluator, run_id))
                    logger.warning("%s; no further call is made", text)
                raise BudgetSpent(text)
        self._set(evaluator, run_id, Spent(so_far.calls + 1, so_far.tokens))

    def used_tokens(self, evaluator: str, run_id: str, tokens: int) -> None:
        """Count the tokens of an answered call."""
        so_far = self.spent(evaluator, run_id)
        self._set(evaluator, run_id, Spent(so_far.calls, so_far.tokens + tokens))

    def _set(self, evaluator: str, run_id: str, spent: Spent) -> None:
        self._spent.setdefault(evaluator, {})[run_id] = spent
        if self._path is not None:
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(msgspec.to_builtins(self._spent)))
            os.replace(beside, self._path)
