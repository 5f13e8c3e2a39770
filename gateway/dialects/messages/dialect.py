"""`POST …/v1/messages` behind the `Dialect` interface."""

from __future__ import annotations

from typing import Literal

from agentworld.contract.ids import new_id as uuid7
from gateway.canonical import ChatCall
from gateway.dialects.messages.call import MessagesCall, NewId
from gateway.dialects.messages.errors import anthropic_error
from gateway.dialects.messages.reply import message_body
from gateway.dialects.messages.request import parse
from gateway.dialects.messages.stream import MessagesStream
from gateway.engine import EngineObject
from gateway.failures import Failure

COUNT_TOKENS_PATH = "messages/count_tokens"
"""Takes the same body, less what concerns the answer; see `counting`."""


class Messages:
    """Anthropic Messages. Same input and same ids from `new_id` give the same bytes."""

    protocol: Literal["messages"] = "messages"
    path = "messages"

    def __init__(self, *, new_id: NewId = uuid7, inner_system: Literal["system", "user"] = "system") -> None:
        """`inner_system`: the role given to system turns within the conversation; `user` for chat
        templates that take a system message only at the start.
        """
        self._new_id = new_id
        self._inner_system: Literal["system", "user"] = inner_system

    def parse(self, body: bytes) -> MessagesCall:
        """The request in canonical form. Raises `InvalidInput` that names the field."""
        return parse(body, new_id=self._new_id, inner_system=self._inner_system)

    def reply(self, call: ChatCall, engine: EngineObject) -> bytes:
        """The Message. Raises `MalformedReply`."""
        return message_body(_own(call), engine)

    def stream(self, call: ChatCall) -> MessagesStream:
        """A fresh stream of events."""
        return MessagesStream(_own(call))

    def error(self, failure: Failure) -> bytes:
        """Anthropic's error object."""
        return anthropic_error(failure)


def _own(call: ChatCall) -> MessagesCall:
    if not isinstance(call, MessagesCall):
        raise TypeError("a Messages reply needs the call that `Messages.parse` gave")
    return call
