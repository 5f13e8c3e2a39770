"""Which step each prompt continues: the longest prompt and response that it begins with."""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence

from agentworld.contract.events.trajectories import StepRelation
from stream_processors.trajectories.turns import Link, Turn

IdsKey = tuple[int, bytes]
"""Length in tokens, and digest."""


def continued(turns: Sequence[Turn]) -> dict[str, Link]:
    """By step id, for steps whose prompt holds another's response; every other step opens something."""
    by_ids, by_messages = _leaves_by_ids(turns), _leaves_by_messages(turns)
    lengths = sorted({length for length, _ in by_ids})
    links = {}
    for turn in turns:
        exact = _longest_by_ids(turn, by_ids, lengths)
        told = _longest_by_messages(turn, by_messages)
        # A template that drops earlier thinking keeps an early step's ids and breaks a later one's.
        if exact and not (told and len(told.messages) > len(exact.messages)):
            links[turn.step.step_id] = Link(exact.step.step_id, "extends")
        elif told:
            links[turn.step.step_id] = Link(told.step.step_id, _relation_without_ids(turn, told))
    return links


def _relation_without_ids(turn: Turn, parent: Turn) -> StepRelation:
    """The messages continue the parent: it extends it where no ids of either say otherwise."""
    ids_disagree = bool(turn.ids) and bool(parent.ids)
    return "rewritten" if ids_disagree or turn.tools != parent.tools else "extends"


def _longest_by_ids(turn: Turn, leaves: dict[IdsKey, list[Turn]], lengths: Sequence[int]) -> Turn | None:
    found: list[Turn] = []
    for key in _prefix_keys(turn.ids, lengths):
        found = leaves.get(key) or found
    return _most_likely(turn, found)


def _longest_by_messages(turn: Turn, leaves: dict[bytes, list[Turn]]) -> Turn | None:
    found: list[Turn] = []
    for chained in _chain(turn.messages):
        found = leaves.get(chained) or found
    return _most_likely(turn, found)


def _most_likely(turn: Turn, found: Sequence[Turn]) -> Turn | None:
    """Of equal answers to equal prompts, the one the client had: whole, begun before, the newest."""
    return max(
        (other for other in found if other is not turn),
        key=lambda other: (other.step.status == "ok", other.started < turn.started, other.started),
        default=None,
    )


def _leaves_by_ids(turns: Sequence[Turn]) -> dict[IdsKey, list[Turn]]:
    leaves: dict[IdsKey, list[Turn]] = defaultdict(list)
    for turn in turns:
        if turn.ids and turn.step.response_ids:
            ids = [*turn.ids, *turn.step.response_ids]
            [key] = _prefix_keys(ids, [len(ids)])
            leaves[key].append(turn)
    return dict(leaves)


def _leaves_by_messages(turns: Sequence[Turn]) -> dict[bytes, list[Turn]]:
    leaves: dict[bytes, list[Turn]] = defaultdict(list)
    for turn in turns:
        for reply in turn.replies if turn.messages else ():
            *_, last = _chain((*turn.messages, reply))
            leaves[last].append(turn)
    return dict(leaves)


def _prefix_keys(ids: Sequence[int], lengths: Sequence[int]) -> Iterator[IdsKey]:
    """Keys of the prefixes of those (ascending) lengths, in one pass over the ids."""
    packed, hashed, done = memoryview(array("I", ids)).cast("B"), hashlib.blake2b(digest_size=16), 0
    for length in lengths:
        if length > len(ids):
            return
        hashed.update(packed[4 * done : 4 * length])
        done = length
        yield length, hashed.copy().digest()


def _chain(messages: Sequence[bytes]) -> Iterator[bytes]:
    """Digest of each non-empty prefix of the messages."""
    before = b""
    for message in messages:
        before = hashlib.blake2b(before + message, digest_size=16).digest()
        yield before
