"""A trajectory as a tree: each step's place, parent and relation, its branches, and the one that trains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agentworld.contract.events import Branch, SealedStep, StepCaptured, TrainedBranch
from stream_processors.trajectories.causal_order import in_causal_order
from stream_processors.trajectories.openings import with_openings
from stream_processors.trajectories.prefixes import continued
from stream_processors.trajectories.retries import superseded_steps
from stream_processors.trajectories.turns import turns_of

_IN_CONVERSATION = frozenset({"root", "extends", "rewritten"})


def placed_steps(steps: Sequence[StepCaptured]) -> list[SealedStep]:
    """All steps, in causal order, classified. The order of `steps` does not matter."""
    turns = turns_of(steps)
    links = continued(turns)
    ordered = in_causal_order(turns, links)
    superseded = superseded_steps(ordered, links)
    links = with_openings(ordered, links)
    return [
        SealedStep(
            step_index=index,
            step=turn.step,
            parent_step_id=links[turn.step.step_id].parent,
            relation=links[turn.step.step_id].relation,
            superseded=turn.step.step_id in superseded,
        )
        for index, turn in enumerate(ordered)
    ]


def branches_of(steps: Sequence[SealedStep]) -> list[Branch]:
    """One per step that nothing continues, superseded ones left out; by the place of that step."""
    by_id = {placed.step.step_id: placed for placed in steps}
    kept = [placed for placed in steps if not placed.superseded]
    continued_ids = {placed.parent_step_id for placed in kept if placed.relation in _IN_CONVERSATION}
    branches = []
    for placed in kept:
        if placed.step.step_id not in continued_ids:
            path = _conversation_path(placed, by_id)
            branches.append(
                Branch(tip_step_id=placed.step.step_id, opened_as=path[-1].relation, steps=len(path))
            )
    return branches


def trained_branch(steps: Sequence[SealedStep]) -> TrainedBranch | None:
    """The main conversation as its client left it: up to its last answered step. None without one."""
    by_id = {placed.step.step_id: placed for placed in steps}
    for placed in reversed(steps):
        if placed.superseded or placed.step.status != "ok":
            continue
        path = _conversation_path(placed, by_id)
        if path[-1].relation == "root":
            return TrainedBranch(
                tip_step_id=placed.step.step_id,
                steps=len(path),
                rule="last_answer_of_main_conversation",
                reason=f"{len(path)} of {len(steps)} steps lead to the main conversation's last answer",
            )
    return None


def drift(steps: Sequence[SealedStep]) -> Counter[str]:
    """How many steps are of each class: their relation, or `superseded`."""
    return Counter("superseded" if placed.superseded else placed.relation for placed in steps)


def _conversation_path(placed: SealedStep, by_id: Mapping[str, SealedStep]) -> list[SealedStep]:
    """From a step back to the one that opened its conversation."""
    path, seen = [placed], {placed.step.step_id}
    while path[-1].relation in {"extends", "rewritten"}:
        parent = path[-1].parent_step_id
        if parent is None or parent in seen or parent not in by_id:
            break
        seen.add(parent)
        path.append(by_id[parent])
    return path
