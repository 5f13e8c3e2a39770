"""A chat message as far as it takes to tell which sampled turn it stands for."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

_ID_CHARS = 40
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")


class Function(msgspec.Struct):
    """What a tool call calls."""

    name: str = ""
    arguments: str | None = None


class Call(msgspec.Struct):
    """A tool call."""

    id: str = ""
    function: Function = msgspec.field(default_factory=Function)


class Echo(msgspec.Struct):
    """A message of the conversation."""

    role: str = ""
    content: Any = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None

    @property
    def calls(self) -> list[Call]:
        """Its tool calls."""
        return self.tool_calls or []

    @property
    def text(self) -> str:
        """Its text without the blanks that clients strip."""
        content = self.content
        if isinstance(content, list):
            content = "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
        return " ".join(content.split()) if isinstance(content, str) else ""


_echo = msgspec.json.Decoder(Echo)


def read(message: bytes) -> Echo:
    """The message; one without a role where it has a form that was never sampled."""
    try:
        return _echo.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Echo()


def cut(identifier: str) -> str:
    """A tool call id as the strictest client leaves it: letters and digits, at most 40."""
    return _NOT_ALPHANUMERIC.sub("", identifier)[:_ID_CHARS]


class Prefix:
    """Digest of a list of messages that grows."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, message: bytes) -> None:
        """Append one."""
        self._hash.update(b"%d:" % len(message))
        self._hash.update(message)

    def value(self) -> bytes:
        """16 bytes, for the messages so far."""
        return self._hash.digest()
