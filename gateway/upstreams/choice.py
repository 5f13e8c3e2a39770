"""Which engine takes a call: the one with the trajectory's prefix in its cache, unless too busy. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """An engine that may take the call."""

    @property
    def name(self) -> str:
        """Stable name."""
        ...

    @property
    def open_calls(self) -> int:
        """Calls of this gateway under way at it."""
        ...


C = TypeVar("C", bound=Candidate)


def choose(candidates: Sequence[C], affinity: str, *, spill_calls: int) -> C:
    """The trajectory's engine by rendezvous hashing, so that all gateways agree and few move when one fails.

    Where that has `spill_calls` more open calls than the least busy one, the latter. Without
    `affinity` the least busy one.
    """
    if len(candidates) == 1:
        return candidates[0]
    ranked = sorted(candidates, key=lambda c: _score(affinity, c.name), reverse=True)
    idlest = min(ranked, key=lambda c: c.open_calls)
    if affinity and ranked[0].open_calls - idlest.open_calls < max(spill_calls, 1):
        return ranked[0]
    return idlest


def _score(affinity: str, name: str) -> bytes:
    return hashlib.blake2b(f"{affinity}\0{name}".encode(), digest_size=8).digest()
