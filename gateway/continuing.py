"""Which earlier step a call continues, and what it takes to continue from a step later on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from agentworld.contract.delta import Leaf, ids_digest
from agentworld.contract.events import Continuation, StepCaptured
from agentworld.platform.metrics import counter
from gateway.canonical import ChatCall, EarlierStep
from gateway.engine import Answer
from gateway.leaves import LeafCache

_MOST_TURNS = 200_000


@dataclass(frozen=True, slots=True)
class _Turn:
    prompt_tokens: int
    end_id: int
    rendered_tokens: int
    rendered_digest: str


def continuation_of(call: ChatCall, answer: Answer) -> Continuation | None:
    """What a captured step says of it; None where there was nothing to continue."""
    done = call.continued
    if done is None or answer.prompt_ids != done.ids:
        return Continuation(declined=call.declined) if call.declined and call.continuing else None
    return Continuation(step_id=done.earlier.step_id, kept_tokens=len(done.earlier.ids), drifted=done.drifted)


class Continuing:
    """Over the leaves of one gateway. Off, it offers and remembers nothing."""

    def __init__(self, leaves: LeafCache, *, on: bool) -> None:
        self._leaves = leaves
        self._on = on
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        """By step; a step whose leaf is forgotten cannot be continued, whatever stands here."""

    def offer(self, call: ChatCall, trajectory_id: str) -> None:
        """Name the step that the call's messages extend furthest, if any."""
        if not self._on or not call.is_chat:
            return
        leaves = self._leaves.recent(trajectory_id)
        leaf = max((leaf for leaf in leaves if _extends(call, leaf)), key=_message_count, default=None)
        if leaf is None:
            call.declined = "no_step_extended" if leaves else ""
        elif (turn := self._turns.get(leaf.step_id)) is None:
            call.declined = "end_of_turn_unknown"
        else:
            call.earlier = EarlierStep(
                step_id=leaf.step_id,
                ids=leaf.ids,
                prompt_tokens=turn.prompt_tokens,
                messages=len(leaf.messages),
                end_id=turn.end_id,
                rendered_tokens=turn.rendered_tokens,
                rendered_digest=turn.rendered_digest,
            )

    def remember(
        self, steps: Iterable[tuple[StepCaptured, Leaf | None]], call: ChatCall, answer: Answer
    ) -> None:
        """Steps are durable: calls may continue them."""
        if not self._on or not call.continuing or not call.is_chat:
            return
        if (said := continuation_of(call, answer)) is not None:
            counter("gateway_continuations", "outcome").labels(said.declined or "continued").inc()
        rendered = call.continued.rendered if call.continued is not None else answer.prompt_ids
        if rendered is None:
            return
        digest = ids_digest(rendered)
        for step, leaf in steps:
            choice = answer.choices.get(step.choice_index)
            if leaf is None or not step.trainable or choice is None or choice.end_id is None:
                continue
            self._turns[step.step_id] = _Turn(step.prompt.prompt_tokens, choice.end_id, len(rendered), digest)
            if len(self._turns) > _MOST_TURNS:
                self._turns.popitem(last=False)


def _message_count(leaf: Leaf) -> int:
    return len(leaf.messages)


def _extends(call: ChatCall, leaf: Leaf) -> bool:
    size = len(leaf.messages)
    return (
        size < len(call.messages) and leaf.tools == call.tools and list(leaf.messages) == call.messages[:size]
    )
