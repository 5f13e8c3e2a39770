"""Sequences of token ids that share beginnings: each beginning is kept, and hashed, once."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentworld.contract.delta import common_prefix

T = TypeVar("T")


class Stem:
    """Ids that follow one another; behind any of them others may branch off."""

    __slots__ = ("branches", "ids", "parent", "start")

    def __init__(self, parent: Stem | None, start: int) -> None:
        self.parent = parent
        self.start = start
        """How many ids stand before its first one."""
        self.ids = array("I")
        self.branches: dict[tuple[int, int], Stem] = {}
        """By how many ids stand before the branch, and its first id."""


@dataclass(frozen=True, slots=True)
class Point:
    """The end of one sequence. Equal sequences of one tree have equal points."""

    stem: Stem
    depth: int
    """Length of the sequence."""

    @property
    def first_id(self) -> int | None:
        """None of the empty sequence."""
        stem = self.stem
        while stem.parent is not None and stem.start:
            stem = stem.parent
        return stem.ids[0] if self.depth else None

    def up_to(self, depth: int) -> Point:
        """The end of its first `depth` ids."""
        stem = self.stem
        while stem.parent is not None and depth <= stem.start:
            stem = stem.parent
        return Point(stem, depth)

    def extended(self, ids: Sequence[int]) -> Point:
        """The end of this sequence followed by `ids`, which the tree then holds."""
        stem, depth, rest = self.stem, self.depth, array("I", ids)
        while rest:
            at = depth - stem.start
            same = common_prefix(stem.ids[at : at + len(rest)], rest[: len(stem.ids) - at])
            depth += same
            rest = rest[same:]
            if not rest:
                break
            branch = stem.branches.get((depth, rest[0]))
            if branch is not None:
                stem = branch
            elif depth == stem.start + len(stem.ids):
                stem.ids += rest
                return Point(stem, depth + len(rest))
            else:
                grown = stem.branches[depth, rest[0]] = Stem(stem, depth)
                grown.ids = rest
                return Point(grown, depth + len(rest))
        return Point(stem, depth)


class Marks(Generic[T]):
    """Values at points of one tree."""

    def __init__(self) -> None:
        self._at: dict[Stem, tuple[list[int], list[T]]] = {}

    def put(self, point: Point, value: T) -> T:
        """The value at `point`: the one that is there, else `value`, which then is."""
        depths, values = self._at.setdefault(point.stem, ([], []))
        index = bisect_left(depths, point.depth)
        if index == len(depths) or depths[index] != point.depth:
            depths.insert(index, point.depth)
            values.insert(index, value)
        return values[index]

    def nearest(self, point: Point) -> tuple[int, T] | None:
        """Of the marked sequences that begin `point`'s, itself among them, the longest's length and value."""
        stem: Stem | None = point.stem
        depth = point.depth
        while stem is not None:
            depths, values = self._at.get(stem, ((), ()))
            if index := bisect_right(depths, depth):
                return depths[index - 1], values[index - 1]
            depth = stem.start
            stem = stem.parent
        return None


class IdTree:
    """Starts empty; it grows by `Point.extended` from its root."""

    def __init__(self) -> None:
        self.root = Point(Stem(None, 0), 0)
        self._hashed: Marks[hashlib.blake2b] = Marks()

    def digest(self, point: Point) -> str:
        """`ids_digest` of the sequence, going on from the longest beginning that was asked for before."""
        known = self._hashed.nearest(point)
        done, state = (known[0], known[1].copy()) if known else (0, hashlib.blake2b(digest_size=8))
        for ids in reversed(_between(done, point)):
            state.update(ids)
        self._hashed.put(point, state)
        return state.hexdigest()


def _between(depth: int, point: Point) -> list[array[int]]:
    """The ids of the sequence behind its first `depth`, in pieces, the last piece first."""
    pieces: list[array[int]] = []
    stem, end = point.stem, point.depth
    while stem.start > depth and (parent := stem.parent) is not None:
        pieces.append(stem.ids[: end - stem.start])
        stem, end = parent, stem.start
    return [*pieces, stem.ids[depth - stem.start : end - stem.start]]
