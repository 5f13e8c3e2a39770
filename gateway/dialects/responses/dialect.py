"""`POST …/v1/responses`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from agentworld.contract.ids import new_id as uuid7
from gateway.canonical import ChatCall
from gateway.dialects.responses.call import ResponsesCall
from gateway.dialects.responses.history import InnerSystem
from gateway.dialects.responses.output import Output
from gateway.dialects.responses.request import parse_request
from gateway.dialects.responses.response import ended_response, last_item_status
from gateway.dialects.responses.sampled import Sampled, sampled_of, usage_of
from gateway.dialects.responses.stream import ResponsesStream
from gateway.engine import EngineObject
from gateway.failures import Failure, error_body


class Responses:
    """OpenAI Responses, stateless: every request carries the whole conversation."""

    protocol: Literal["responses"] = "responses"
    path = "responses"

    def __init__(self, *, new_id: Callable[[], str] = uuid7, inner_system: InnerSystem = "system") -> None:
        """`new_id` gives UUIDv7 strings.

        `inner_system` is the role of developer and system messages within the conversation;
        take "user" for a chat template that accepts a system message only at the start.
        """
        self._new_id = new_id
        self._inner_system = inner_system

    def parse(self, body: bytes) -> ResponsesCall:
        """The request as a chat completions call. Raises `InvalidInput` that names the field."""
        return parse_request(body, minted=self._new_id(), inner_system=self._inner_system)

    def reply(self, call: ChatCall, engine: EngineObject) -> bytes:
        """The response object."""
        own = _own(call)
        sampled, finish_reason = sampled_of(engine, "message")
        output = Output(own)
        output.add(sampled or Sampled())
        output.close(last_item_status(own, finish_reason))
        return msgspec.json.encode(ended_response(own, finish_reason, output.items, usage_of(engine)))

    def stream(self, call: ChatCall) -> ResponsesStream:
        """A fresh stream."""
        return ResponsesStream(_own(call))

    def error(self, failure: Failure) -> bytes:
        """OpenAI's error object."""
        return error_body(failure)


def _own(call: ChatCall) -> ResponsesCall:
    if not isinstance(call, ResponsesCall):
        raise TypeError("a call of another dialect")
    return call
