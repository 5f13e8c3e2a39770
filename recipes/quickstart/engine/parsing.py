"""From sampled tokens to what the client reads: text and tool calls, token by token.

One parser serves streaming and plain replies, so the two agree by construction.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from recipes.quickstart.engine.vocabulary import (
    CALL_CLOSE,
    CALL_OPEN,
    SILENT_IDS,
    token_bytes,
    token_text,
)

_CALL = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(\{.*\})\s*\}\s*', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made; `arguments` is JSON text, as sampled."""

    name: str
    arguments: str


Piece = str | ToolCall


def parse_call(text: str) -> ToolCall | None:
    """The call between two tool-call marks, or None where it is not one."""
    found = _CALL.fullmatch(text)
    if not found:
        return None
    try:
        name = json.loads(found.group(1))
        json.loads(found.group(2))
    except ValueError:
        return None
    return ToolCall(name=name, arguments=found.group(2))


class ReplyParser:
    """Feed it tokens; it returns the text and the calls as they become certain.

    A call that does not parse comes back as text. `stopped` turns true where a stop string was
    met; the text ends before it.
    """

    def __init__(self, *, parse_calls: bool, stop: Sequence[str] = ()) -> None:
        self._parse_calls = parse_calls
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._call: bytearray | None = None
        self._calls = 0
        self.stopped: str | None = None

    @property
    def called(self) -> bool:
        """Whether a tool call was parsed."""
        return self._calls > 0

    def feed(self, token_id: int) -> list[Piece]:
        """What became certain with this token."""
        if token_id in SILENT_IDS:
            return []
        if self._call is not None:
            if token_id != CALL_CLOSE:
                self._call += token_bytes(token_id)
                return []
            return self._close_call()
        if token_id == CALL_OPEN and self._parse_calls:
            self._call = bytearray()
            return self._release(final=True)
        self._pending += self._decoder.decode(token_bytes(token_id))
        return self._release(final=False)

    def finish(self) -> list[Piece]:
        """What was held back, once no more tokens come."""
        if self._call is not None:
            self._pending += token_text(CALL_OPEN) + self._call.decode("utf-8", "replace")
            self._call = None
        self._pending += self._decoder.decode(b"", final=True)
        return self._release(final=True)

    def _close_call(self) -> list[Piece]:
        assert self._call is not None
        text = self._call.decode("utf-8", "replace")
        self._call = None
        call = parse_call(text)
        if call is not None:
            self._calls += 1
            return [call]
        self._pending += token_text(CALL_OPEN) + text + token_text(CALL_CLOSE)
        return self._release(final=False)

    def _release(self, *, final: bool) -> list[Piece]:
        if self.stopped is not None:
            return []
        met = [(at, stop) for stop in self._stop if (at := self._pending.find(stop)) >= 0]
        if met:
            at, self.stopped = min(met)
            text, self._pending = self._pending[:at], ""
            return [text] if text else []
        held = 0 if final else self._held_back()
        cut = len(self._pending) - held
        text, self._pending = self._pending[:cut], self._pending[cut:]
        return [text] if text else []

    def _held_back(self) -> int:
        sizes = (
            size
            for stop in self._stop
            for size in range(min(len(stop) - 1, len(self._pending)), 0, -1)
            if self._pending.endswith(stop[:size])
        )
        return max(sizes, default=0)
