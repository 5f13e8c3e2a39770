"""Which entity of a partition is due next."""

from __future__ import annotations

import heapq


class Deadlines:
    """One deadline (log time, ms) per key; the newest one set counts."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, due_ms: int) -> None:
        """Set or move the deadline of `key`."""
        if self._at.get(key) != due_ms:
            self._at[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))
            if len(self._heap) > 64 + 4 * len(self._at):
                self._heap = [(due, name) for name, due in self._at.items()]
                heapq.heapify(self._heap)

    def clear(self, key: str) -> None:
        """Forget the deadline of `key`, if it has one."""
        self._at.pop(key, None)

    def pop_due(self, now_ms: int) -> list[str]:
        """Keys due at `now_ms`, by deadline and then key; they lose their deadline."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, key = heapq.heappop(self._heap)
            if self._at.get(key) == due_ms:
                del self._at[key]
                due.append(key)
        return due
