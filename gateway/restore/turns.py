"""The sampled turns of one trajectory, and which of them an echo stands for."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.restore.echoes import Echo, Prefix, cut, read


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn that was sampled and that the client has."""

    step_id: str
    message: bytes
    """The canonical message as captured."""
    ids: tuple[tuple[str, str], ...]
    """Of each tool call: the id that the client saw, cut as clients cut it; the engine's."""
    text: str
    prefix: bytes
    """Digest of the canonical messages that it was sampled from."""

    @classmethod
    def of(
        cls, step_id: str, message: bytes, prompt: Iterable[bytes], seen_ids: Sequence[str] = ()
    ) -> SampledTurn:
        """`prompt`: the messages as the engine had them. `seen_ids`: the tool call ids that the client
        saw, in order; none where it saw the engine's.
        """
        turn = read(message)
        engine = [call.id for call in turn.calls]
        if seen_ids and len(seen_ids) != len(engine):
            raise ValueError(f"{len(seen_ids)} ids were seen, but {len(engine)} tools called")
        prefix = Prefix()
        for part in prompt:
            prefix.add(part)
        pairs = zip(map(cut, seen_ids or engine), engine, strict=True)
        return cls(step_id, message, tuple(pairs), turn.text, prefix.value())

    @property
    def seen(self) -> set[str]:
        """Its tool call ids, as an echo has them."""
        return {seen for seen, _ in self.ids}

    def size_bytes(self) -> int:
        """About what remembering it costs."""
        return len(self.message) + len(self.text) + 500


class Turns:
    """Turns by what an echo keeps of them, oldest first."""

    def __init__(self) -> None:
        self.all: OrderedDict[str, SampledTurn] = OrderedDict()
        """By step id."""
        self.noted: set[tuple[str, bytes]] = set()
        """Client forms reported so far (`TurnMemory.news`)."""
        self._by_id: defaultdict[str, list[SampledTurn]] = defaultdict(list)
        self._by_text: defaultdict[str, list[SampledTurn]] = defaultdict(list)

    def add(self, turn: SampledTurn) -> None:
        """Remember; the same step twice counts once."""
        if turn.step_id not in self.all:
            self.all[turn.step_id] = turn
            for known in self._places(turn):
                known.append(turn)

    def drop_oldest(self) -> SampledTurn:
        """Forget the oldest."""
        _, turn = self.all.popitem(last=False)
        for known in self._places(turn):
            known.remove(turn)
        self.noted = {note for note in self.noted if note[0] != turn.step_id}
        return turn

    def _places(self, turn: SampledTurn) -> list[list[SampledTurn]]:
        return [self._by_id[seen] for seen in turn.seen] if turn.ids else [self._by_text[turn.text]]

    def find(self, echo: Echo, raw: bytes, prefix: Prefix, *, times: int) -> SampledTurn | None:
        """The turn that `echo` stands for, if that is certain. `times`: how often its text is sent."""
        if echo.calls:
            ids = [cut(call.id) for call in echo.calls]
            known = [turn for turn in self._by_id.get(ids[0], ()) if turn.seen.issuperset(ids)]
            times = 1
        else:
            known = self._by_text.get(echo.text, [])
        if not known:
            return None
        at = prefix.value()
        for turn in reversed(known):
            if turn.prefix == at:
                return turn
        equal = all(turn.message == known[0].message for turn in known)
        if equal and times <= len(known):
            return known[-1]
        return next((turn for turn in known if turn.message == raw), None)

    def left_out(self, prefix: Prefix) -> SampledTurn | None:
        """The turn without text and calls, thus nothing to echo, that was sampled from just this prompt."""
        known = self._by_text.get("")
        if not known:
            return None
        at = prefix.value()
        return next((turn for turn in reversed(known) if turn.prefix == at), None)


def as_seen(message: bytes, seen_ids: Sequence[str]) -> bytes:
    """A captured message with the tool call ids that the client saw; as it is where it saw the engine's."""
    if not seen_ids:
        return message
    fields: dict[str, Any] = msgspec.json.decode(message)
    for call, seen in zip(fields.get("tool_calls") or (), seen_ids, strict=True):
        call["id"] = seen
    return msgspec.json.encode(fields)
