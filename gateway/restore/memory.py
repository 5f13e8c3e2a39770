"""Sampled turns of the trajectories under way. Bounded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

from gateway.restore.putting_back import Replaced
from gateway.restore.turns import SampledTurn, Turns


class TurnMemory:
    """Turns by trajectory. The least recently used trajectories are forgotten first."""

    def __init__(self, *, per_trajectory: int, max_bytes: int) -> None:
        self._per_trajectory = per_trajectory
        self._max_bytes = max_bytes
        self._trajectories: OrderedDict[str, Turns] = OrderedDict()
        self.size_bytes = 0

    def turns(self, trajectory_id: str) -> Turns:
        """What is remembered of a trajectory; nothing of one not known."""
        turns = self._trajectories.get(trajectory_id)
        if turns is None:
            return Turns()
        self._trajectories.move_to_end(trajectory_id)
        return turns

    def add(self, trajectory_id: str, turn: SampledTurn) -> None:
        """Remember a turn whose step is durable and whose reply went out whole."""
        turns = self._trajectories.setdefault(trajectory_id, Turns())
        self._trajectories.move_to_end(trajectory_id)
        if turn.step_id not in turns.all:
            turns.add(turn)
            self.size_bytes += turn.size_bytes()
        while len(turns.all) > self._per_trajectory:
            self.size_bytes -= turns.drop_oldest().size_bytes()
        while self.size_bytes > self._max_bytes and self._trajectories:
            self.forget(next(iter(self._trajectories)))

    def forget(self, trajectory_id: str) -> None:
        """Drop a trajectory's turns."""
        turns = self._trajectories.pop(trajectory_id, None)
        if turns is not None:
            self.size_bytes -= sum(turn.size_bytes() for turn in turns.all.values())

    def news(self, trajectory_id: str, replaced: Iterable[Replaced]) -> list[Replaced]:
        """Those not returned before: a turn is echoed in every later call, its client form is kept once."""
        noted = self.turns(trajectory_id).noted
        fresh = []
        for one in replaced:
            note = _note(one)
            if note not in noted:
                noted.add(note)
                fresh.append(one)
        return fresh

    def forget_news(self, trajectory_id: str, replaced: Iterable[Replaced]) -> None:
        """Those were returned but got lost: return them again."""
        self.turns(trajectory_id).noted.difference_update(map(_note, replaced))


def _note(replaced: Replaced) -> tuple[str, bytes]:
    return replaced.step_id, hashlib.blake2b(replaced.client or b"", digest_size=16).digest()
