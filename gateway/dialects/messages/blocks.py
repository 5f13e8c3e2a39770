"""The content blocks of a streamed Message: one is open at a time, opened and closed as parts come."""

from __future__ import annotations

from typing import Any, Literal

from gateway.dialects.messages.call import MessagesCall, Signature
from gateway.dialects.messages.events import event
from gateway.engine import MalformedReply

Words = Literal["thinking", "text"]


class BlockWriter:
    """Turns parts of an answer into block events."""

    def __init__(self, call: MessagesCall) -> None:
        self._call = call
        self._place = -1
        """Of the open or last block."""
        self._open: Words | int | None = None
        """What the open block holds: words, or the engine's tool call of that index."""
        self._blank = ""
        """White space that begins a block of words; not shown if nothing follows it."""
        self._blank_of: Words = "text"
        self._signature = Signature()
        self._named = False
        """Whether the open tool call's block has been announced."""
        self._tools: dict[int, str] = {}
        """Name of each tool call met, by the engine's index."""

    @property
    def calls_tools(self) -> bool:
        """Whether the answer has tool calls."""
        return bool(self._tools)

    def words(self, kind: Words, part: str) -> bytes:
        """More thinking or text."""
        if not part:
            return b""
        out = b""
        if self._open != kind:
            if self._blank_of == kind:
                part = self._blank + part
            self._blank, self._blank_of = "", kind
            if not part.strip():
                self._blank = part
                return b""
            begin = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
            out = self.close() + self._begin(kind, {"type": kind, **begin})
        if kind == "thinking":
            self._signature.add(part)
        return out + self._delta(f"{kind}_delta", **{kind: part})

    def call(self, index: int, name: str, arguments: str) -> bytes:
        """More of the tool call `index`. Its block opens once its name is whole."""
        self._blank = ""
        out = b""
        if index not in self._tools:
            out = self.close()
            self._tools[index] = ""
            self._open = index
            self._place += 1
            self._named = False
        elif self._open != index:
            raise MalformedReply("it went back to a tool call after it had begun something else")
        if not self._named:
            self._tools[index] += name
            if not arguments:
                return out
            out += self._begin_call(index)
        return out + (self._delta("input_json_delta", partial_json=arguments) if arguments else b"")

    def close(self) -> bytes:
        """End the open block, if any."""
        if self._open is None:
            return b""
        out = b""
        if self._open == "thinking":
            out = self._delta("signature_delta", signature=str(self._signature))
            self._signature = Signature()
        elif self._open != "text" and not self._named:
            out = self._begin_call(int(self._open))
        self._open = None
        return out + event("content_block_stop", index=self._place)

    def _begin_call(self, index: int) -> bytes:
        self._named = True
        block = {
            "type": "tool_use",
            "id": self._call.tool_id(index),
            "name": self._tools[index],
            "input": {},
        }
        return event("content_block_start", index=self._place, content_block=block)

    def _begin(self, kind: Words, block: dict[str, Any]) -> bytes:
        self._open = kind
        self._place += 1
        return event("content_block_start", index=self._place, content_block=block)

    def _delta(self, kind: str, **fields: str) -> bytes:
        return event("content_block_delta", index=self._place, delta={"type": kind, **fields})
