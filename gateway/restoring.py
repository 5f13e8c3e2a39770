"""Putting sampled turns back into the calls of a trajectory, and remembering new ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from agentworld.contract.events import Json, StepCaptured, raw_json
from gateway.canonical import ChatCall
from gateway.restore import Replaced, SampledTurn, TurnMemory, restore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What the client had made of sampled turns, as far as no earlier step says so."""

    turns: list[Replaced] = field(default_factory=list)

    def metadata(self) -> Json:
        """For the step: `restored` is a list of index, step id and the client's form (None: left out)."""
        if not self.turns:
            return {}
        return {
            "restored": [
                {
                    "index": turn.index,
                    "step_id": turn.step_id,
                    "client": None if turn.client is None else msgspec.Raw(turn.client),
                    **({} if turn.exact else {"exact": False}),
                }
                for turn in self.turns
            ]
        }


class Restoring:
    """Over the memory of one gateway. Off, it changes and remembers nothing."""

    def __init__(self, memory: TurnMemory, *, on: bool) -> None:
        self._memory = memory
        self._on = on

    def put_back(self, call: ChatCall, trajectory_id: str) -> list[Replaced]:
        """Change the call's messages to what was sampled; the turns that were put back."""
        if not self._on or not call.messages:
            return []
        restored = restore(call.messages, self._memory.turns(trajectory_id))
        if restored.messages != call.messages:
            call.messages = restored.messages
            call.fields["messages"] = restored.array()
        return restored.replaced

    def news(self, trajectory_id: str, replaced: Iterable[Replaced]) -> Rewritten:
        """Of the turns put back, those to be told in the step."""
        return Rewritten(self._memory.news(trajectory_id, replaced))

    def not_told(self, trajectory_id: str, rewritten: Rewritten) -> None:
        """The step that was to tell them is not durable: the next one tells them."""
        self._memory.forget_news(trajectory_id, rewritten.turns)

    def remember(self, steps: Sequence[StepCaptured], call: ChatCall) -> None:
        """Steps are durable: their turns can be put back from now on."""
        if not self._on or not call.messages:
            return
        for step in steps:
            message = raw_json(step.message)
            if step.status != "ok" or message is None:
                continue
            try:
                turn = SampledTurn.of(step.step_id, message, call.messages, call.seen_ids())
            except ValueError as exc:
                logger.warning("the turn of step %s cannot be put back later: %s", step.step_id, exc)
                continue
            self._memory.add(step.trajectory_id, turn)
