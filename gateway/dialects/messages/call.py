"""A Messages call: the canonical call plus what its reply needs to know."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from agentworld.contract.ids import new_id
from gateway.canonical import ChatCall

NewId = Callable[[], str]
"""Gives an id that no other call has; its dashes are left out."""


@dataclass(slots=True)
class MessagesCall(ChatCall):
    """State of one call. Ids are minted once, so a reply names a tool call the same way throughout."""

    new_id: NewId = new_id
    stop_sequences: tuple[str, ...] = ()
    tool_ids: dict[int, str] = field(default_factory=dict)
    """Tool call ids as the client saw them, by the engine's tool index."""

    def message_id(self) -> str:
        """A fresh id for the reply."""
        return "msg_" + _plain(self.new_id())

    def tool_id(self, index: int) -> str:
        """The client's id of the engine's tool call `index`: letters and digits, at most 40, unique.

        Engines' own ids may be too long, hold other characters, or repeat from turn to turn.
        """
        if index not in self.tool_ids:
            self.tool_ids[index] = ("toolu" + _plain(self.new_id()))[:40]
        return self.tool_ids[index]

    def seen_ids(self) -> list[str]:
        """Ids of the reply's tool calls as the client saw them, in order."""
        return [self.tool_ids[index] for index in sorted(self.tool_ids)]


class Signature:
    """What clients echo beside a thinking text: a digest of it, so equal texts have equal signatures."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=24, person=b"agentworld")

    def add(self, thinking: str) -> None:
        """Take in the next part of the text."""
        self._digest.update(thinking.encode("utf-8", "surrogatepass"))

    def __str__(self) -> str:
        return base64.b64encode(self._digest.digest()).decode()


def _plain(identifier: str) -> str:
    return identifier.replace("-", "")
