"""Which step each prompt continues: the longest prompt and response that it begins with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from agentworld.contract.events.trajectories import StepRelation
from stream_processors.trajectories.id_tree import Marks
from stream_processors.trajectories.turns import Link, Turn


def continued(turns: Sequence[Turn]) -> dict[str, Link]:
    """By step id, for steps whose prompt holds another's response; every other step opens something."""
    by_ids, by_messages = _leaves_by_ids(turns), _leaves_by_messages(turns)
    links = {}
    for turn in turns:
        exact = _longest_by_ids(turn, by_ids)
        told = _longest_by_messages(turn, by_messages)
        # A template that drops earlier thinking keeps an early step's ids and breaks a later one's.
        if exact and not (told and len(told.messages) > len(exact.messages)):
            links[turn.step.step_id] = Link(exact.step.step_id, "extends")
        elif told:
            links[turn.step.step_id] = Link(told.step.step_id, _relation_without_ids(turn, told))
    return links


def _relation_without_ids(turn: Turn, parent: Turn) -> StepRelation:
    """The messages continue the parent: it extends it where no ids of either say otherwise."""
    ids_disagree = turn.has_ids and parent.has_ids
    return "rewritten" if ids_disagree or turn.tools != parent.tools else "extends"


def _longest_by_ids(turn: Turn, leaves: Marks[list[Turn]]) -> Turn | None:
    found = leaves.nearest(turn.prompt.ids)
    return _most_likely(turn, found[1] if found else [])


def _longest_by_messages(turn: Turn, leaves: dict[int, list[Turn]]) -> Turn | None:
    found = next((leaves[number] for number in reversed(turn.messages) if number in leaves), [])
    return _most_likely(turn, found)


def _most_likely(turn: Turn, found: Sequence[Turn]) -> Turn | None:
    """Of equal answers to equal prompts, the one the client had: whole, begun before, the newest."""
    return max(
        (other for other in found if other is not turn),
        key=lambda other: (other.step.status == "ok", other.started < turn.started, other.started),
        default=None,
    )


def _leaves_by_ids(turns: Sequence[Turn]) -> Marks[list[Turn]]:
    leaves: Marks[list[Turn]] = Marks()
    for turn in turns:
        if turn.leaf_ids is not None:
            leaves.put(turn.leaf_ids, []).append(turn)
    return leaves


def _leaves_by_messages(turns: Sequence[Turn]) -> dict[int, list[Turn]]:
    leaves: dict[int, list[Turn]] = defaultdict(list)
    for turn in turns:
        for number in turn.leaf_messages:
            leaves[number].append(turn)
    return dict(leaves)
