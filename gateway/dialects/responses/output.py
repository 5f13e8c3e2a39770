"""A sampled turn to output items, one after another, whether it comes whole or in pieces.

Each item ends before the next begins: clients keep one open item, and take the order
of their ends for the order of the history.
"""

from __future__ import annotations

from typing import Any, Literal

from gateway.dialects.responses.call import ResponsesCall, ToolOrigin
from gateway.dialects.responses.open_items import (
    CallItem,
    Event,
    MessageItem,
    OpenItem,
    ReasoningItem,
    Status,
)
from gateway.dialects.responses.sampled import CallPiece, Sampled
from gateway.engine import MalformedReply


class Output:
    """Items of one answer. Pure: events come back."""

    def __init__(self, call: ResponsesCall) -> None:
        self._call = call
        self.items: list[dict[str, Any]] = []
        """Those that have ended."""
        self._open: OpenItem | None = None
        self._pending: _PendingCall | None = None
        self._last_call = -1
        """The engine's index of the newest call."""
        self._empty_text = False
        """The engine said that there is text, and that it is empty."""
        self._has_message = False

    def add(self, sampled: Sampled) -> list[Event]:
        """Take in what was sampled. Raises `MalformedReply` where calls are out of order."""
        events: list[Event] = []
        if sampled.thought:
            events += self._add_reasoning(sampled.thought)
        if sampled.content:
            events += self._add_text("output_text", sampled.content)
        if sampled.refusal:
            events += self._add_text("refusal", sampled.refusal)
        self._empty_text = self._empty_text or sampled.content == ""
        for place, piece in enumerate(sampled.tool_calls or ()):
            events += self._add_call(piece, piece.index if piece.index is not None else place)
        return events

    def close(self, status: Status) -> list[Event]:
        """The turn has ended; `status` is that of the item that ended it."""
        wordless = self._last_call < 0 and not self._has_message
        nothing = not self.items and self._open is None
        # A turn stays in the client's history only if some item stands for it.
        events = self._add_text("output_text", "") if wordless and (self._empty_text or nothing) else []
        return events + self._end(status)

    def _next_id(self, kind: str) -> str:
        return f"{kind}_{self._call.stem}{len(self.items):02d}"

    def _end(self, status: Status) -> list[Event]:
        events = self._begin_call()
        if self._open is not None:
            events += self._open.close(status)
            self.items.append(self._open.item(status))
            self._open = None
        return events

    def _add_reasoning(self, text: str) -> list[Event]:
        events: list[Event] = []
        if not isinstance(self._open, ReasoningItem):
            events += self._end("completed")
            self._open = ReasoningItem(
                self._next_id("rs"),
                len(self.items),
                as_summary=self._call.summarises,
                sealed=self._call.seals_reasoning,
            )
            events += self._open.open()
        return [*events, self._open.add(text)]

    def _add_text(self, kind: Literal["output_text", "refusal"], text: str) -> list[Event]:
        events: list[Event] = []
        if not isinstance(self._open, MessageItem):
            events += self._end("completed")
            self._open = MessageItem(self._next_id("msg"), len(self.items))
            self._has_message = True
            events += self._open.open()
        return events + self._open.add(kind, text)

    def _add_call(self, piece: CallPiece, index: int) -> list[Event]:
        events: list[Event] = []
        if index > self._last_call:
            events += self._end("completed")
            self._last_call = index
            self._pending = _PendingCall()
        elif index < self._last_call or (self._pending is None and not isinstance(self._open, CallItem)):
            raise MalformedReply(f"more of tool call {index} came after what follows it")
        name = piece.function.name or "" if piece.function else ""
        if self._pending is not None:
            self._pending.id = piece.id or self._pending.id
            self._pending.name += name
        elif name:
            raise MalformedReply(f"the name of tool call {index} went on after its arguments")
        arguments = piece.function.arguments or "" if piece.function else ""
        if arguments:
            events += self._begin_call()
            if isinstance(self._open, CallItem):
                events += self._open.add(arguments)
        return events

    def _begin_call(self) -> list[Event]:
        """Open the item of the call whose name is now whole, if there is one."""
        pending, self._pending = self._pending, None
        if pending is None:
            return []
        origin = self._call.tool_origins.get(pending.name) or ToolOrigin(pending.name)
        place = len(self.items)
        call_id = self._call.tool_id(self._last_call, pending.id)
        item = CallItem(self._next_id("ctc" if origin.kind == "custom" else "fc"), place, call_id, origin)
        self._open = item
        return item.open()


class _PendingCall:
    """A call whose name may still grow."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
