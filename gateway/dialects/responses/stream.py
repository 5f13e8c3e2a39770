"""A streamed answer as Responses events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.dialects.responses.call import ResponsesCall
from gateway.dialects.responses.open_items import Event
from gateway.dialects.responses.output import Output
from gateway.dialects.responses.response import (
    ended_response,
    last_item_status,
    response_error,
    response_object,
)
from gateway.dialects.responses.sampled import sampled_of, usage_of
from gateway.engine import EngineObject
from gateway.failures import Failure
from gateway.sse import sse_event

KEEP_ALIVE = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'
"""Resets Codex's idle timer, which comments do not."""


class ResponsesStream:
    """`start` is implied by the first `feed`; the item under way and the response end in `finish`."""

    def __init__(self, call: ResponsesCall) -> None:
        self._call = call
        self._output = Output(call)
        self._sequence = 0
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None

    def start(self) -> bytes:
        """The response begins: may be sent while the engine is still waited for. Empty when repeated."""
        if self._sequence:
            return b""
        response = response_object(self._call, "in_progress", [])
        kinds = ("response.created", "response.in_progress")
        return self._events({"type": kind, "response": response} for kind in kinds)

    def feed(self, chunk: EngineObject) -> bytes:
        """Events for one chunk. Raises `MalformedReply`."""
        out = self.start()
        sampled, finish_reason = sampled_of(chunk, "delta")
        self._finish_reason = finish_reason or self._finish_reason
        self._usage = usage_of(chunk) or self._usage
        return out + self._events(self._output.add(sampled)) if sampled is not None else out

    def keepalive(self) -> bytes:
        """What may be sent at any time while there is nothing to say; begins the response if need be."""
        return self.start() + KEEP_ALIVE

    def finish(self) -> bytes:
        """What ends the last item and the response."""
        out = self.start()
        out += self._events(self._output.close(last_item_status(self._call, self._finish_reason)))
        response = ended_response(self._call, self._finish_reason, self._output.items, self._usage)
        return out + self._events([{"type": f"response.{response['status']}", "response": response}])

    def fail(self, failure: Failure) -> bytes:
        """The response failed, with the items that had ended before."""
        error = response_error(failure)
        response = response_object(self._call, "failed", self._output.items, usage=self._usage, error=error)
        return self.start() + self._events([{"type": "response.failed", "response": response}])

    def _events(self, events: Iterable[Event]) -> bytes:
        out = []
        for event in events:
            numbered = {"type": event["type"], "sequence_number": self._sequence, **event}
            out.append(sse_event(msgspec.json.encode(numbered), event["type"]))
            self._sequence += 1
        return b"".join(out)
