"""How far each partition is dealt with, while its records are dealt with out of order. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agentworld.contract.events import Place

Partition = tuple[str, int]


class Progress:
    """Records under way, by partition. A position is never past a record that is not done."""

    def __init__(self) -> None:
        self._done: dict[Partition, dict[int, bool]] = {}

    def begin(self, place: Place) -> bool:
        """Take note of a record; False where it is known already: a redelivery of one under way."""
        offsets = self._done.setdefault((place.topic, place.partition), {})
        if place.offset in offsets:
            return False
        offsets[place.offset] = False
        return True

    def done(self, place: Place) -> None:
        """The record is dealt with."""
        self._done[place.topic, place.partition][place.offset] = True

    def positions(self) -> dict[Partition, int]:
        """The offset after which each partition is still open, where that has moved since `committed`."""
        moved = {}
        for partition, offsets in self._done.items():
            for offset in sorted(offsets):
                if not offsets[offset]:
                    break
                moved[partition] = offset + 1
        return moved

    def committed(self, positions: Mapping[Partition, int]) -> None:
        """Forget what lies before these."""
        for partition, position in positions.items():
            left = {offset: done for offset, done in self._done[partition].items() if offset >= position}
            self._done[partition] = left
