"""Which conversation a prompt continues, by its longest known prefix. Bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.online.said import prefixes


@dataclass(slots=True)
class _End:
    """Where an answer ended, and whether a later call went on from there."""

    trajectory_id: str
    continued: bool = False


class Conversations:
    """Ends of sampled answers, by the digest of all that was said until then.

    A prompt alone never names a conversation: rollouts of one task begin alike. Where two
    conversations came to the same words, each continuation takes one that was not continued yet.
    """

    def __init__(self, *, max_ends: int) -> None:
        self._max_ends = max_ends
        self._ends: OrderedDict[bytes, list[_End]] = OrderedDict()
        self._count = 0
        self._failed: OrderedDict[bytes, str] = OrderedDict()

    def find(self, said: Sequence[bytes]) -> str | None:
        """The trajectory that prefixes `said` (see `said.prefixes`) continue; the longest decides."""
        if said and (failed := self._failed.pop(said[-1], None)) is not None:
            return failed
        for digest in reversed(said):
            ends = self._ends.get(digest)
            if ends is not None:
                self._ends.move_to_end(digest)
                end = next((end for end in ends if not end.continued), ends[-1])
                end.continued = True
                return end.trajectory_id
        return None

    def failed(self, trajectory_id: str, said: Sequence[bytes]) -> None:
        """The prompt `said` got no answer: the same again, once, belongs to the same trajectory."""
        if said:
            self._failed[said[-1]] = trajectory_id
            while len(self._failed) > self._max_ends:
                self._failed.popitem(last=False)

    def sampled(self, trajectory_id: str, said: Sequence[bytes], message: bytes) -> None:
        """An answer to the prompt `said` is durable: calls that begin with both belong to its trajectory."""
        (digest,) = prefixes([message], after=said[-1] if said else b"")
        ends = self._ends.setdefault(digest, [])
        self._ends.move_to_end(digest)
        ends.append(_End(trajectory_id))
        self._count += 1
        while self._count > self._max_ends:
            _, dropped = self._ends.popitem(last=False)
            self._count -= len(dropped)
