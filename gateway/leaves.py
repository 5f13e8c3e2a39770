"""Recent leaves per trajectory, so that a prompt can be captured as a delta. Bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from agentworld.contract.delta import Leaf


class LeafCache:
    """The least recently used trajectories go first; theirs then send whole prompts again."""

    def __init__(self, *, per_trajectory: int, max_bytes: int) -> None:
        self._per_trajectory = per_trajectory
        self._max_bytes = max_bytes
        self._leaves: OrderedDict[str, deque[Leaf]] = OrderedDict()
        self.size_bytes = 0

    def recent(self, trajectory_id: str) -> Sequence[Leaf]:
        """Leaves of the trajectory's recent steps, newest first."""
        leaves = self._leaves.get(trajectory_id)
        if leaves is None:
            return ()
        self._leaves.move_to_end(trajectory_id)
        return tuple(leaves)

    def add(self, trajectory_id: str, leaf: Leaf) -> None:
        """Remember the leaf of a step that is durable: others may now build on it."""
        leaves = self._leaves.setdefault(trajectory_id, deque())
        self._leaves.move_to_end(trajectory_id)
        leaves.appendleft(leaf)
        self.size_bytes += leaf.size_bytes()
        while len(leaves) > self._per_trajectory:
            self.size_bytes -= leaves.pop().size_bytes()
        while self.size_bytes > self._max_bytes and self._leaves:
            self.forget(next(iter(self._leaves)))

    def forget(self, trajectory_id: str) -> None:
        """Drop a trajectory's leaves."""
        for leaf in self._leaves.pop(trajectory_id, ()):
            self.size_bytes -= leaf.size_bytes()
