"""An engine's chunks as Anthropic events, each as soon as its chunk is there."""

from __future__ import annotations

from gateway.dialects.messages.blocks import BlockWriter
from gateway.dialects.messages.call import MessagesCall
from gateway.dialects.messages.engine_part import Ending, part_of
from gateway.dialects.messages.errors import error_object
from gateway.dialects.messages.events import event
from gateway.engine import EngineObject
from gateway.failures import Failure

PING = event("ping")
"""Keeps clients waiting, before the first event as well as between later ones."""


class MessagesStream:
    """One streamed reply."""

    def __init__(self, call: MessagesCall) -> None:
        self._ending = Ending(call)
        self._blocks = BlockWriter(call)
        self._started = False

    def feed(self, chunk: EngineObject) -> bytes:
        """Events for one chunk. Raises `MalformedReply`."""
        self._ending.add(chunk)
        part = part_of(chunk, "delta")
        out = self._start()
        out += self._blocks.words("thinking", part.thinking)
        out += self._blocks.words("text", part.text)
        for place, tool in enumerate(part.tool_calls or ()):
            index = place if tool.index is None else tool.index
            function = tool.function
            name, arguments = (function.name, function.arguments) if function else (None, None)
            out += self._blocks.call(index, name or "", arguments or "")
        return out

    def finish(self) -> bytes:
        """The last block's end, why the answer ended, what it took, and the end."""
        ending = self._ending
        out = self._start() + self._blocks.close()
        ending.calls_tools = self._blocks.calls_tools
        delta = {"stop_reason": ending.stop_reason, "stop_sequence": ending.stop_sequence}
        return out + event("message_delta", delta=delta, usage=ending.usage) + event("message_stop")

    def keepalive(self) -> bytes:
        """What may be sent at any time while there is nothing to say."""
        return PING

    def fail(self, failure: Failure) -> bytes:
        """An `error` event; no `message_stop` follows."""
        return event("error", error=error_object(failure)["error"])

    def _start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        return event("message_start", message=self._ending.message([], ended=False))
