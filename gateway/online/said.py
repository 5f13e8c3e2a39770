"""What was said in a conversation, whatever form a client gives it: digests of growing prefixes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.restore.echoes import read

_UNSAID = frozenset({"system", "developer"})


def prefixes(messages: Iterable[bytes], *, after: bytes = b"") -> list[bytes]:
    """A digest per message, of the conversation up to and with it; the first continues from `after`.

    Instructions do not count, for clients change them on the way. Nor do ids, spacing, the order of
    arguments, reasoning, and whether content is a string or a list.
    """
    found = []
    digest = after
    for message in messages:
        echo = read(message)
        if echo.role not in _UNSAID:
            calls = [(call.function.name, _arguments(call.function.arguments)) for call in echo.calls]
            said = msgspec.json.encode((echo.role, echo.text, calls))
            digest = hashlib.blake2b(digest + said, digest_size=16).digest()
        found.append(digest)
    return found


def _arguments(arguments: str | None) -> str:
    try:
        parsed: Any = msgspec.json.decode(arguments or "{}")
        return msgspec.json.encode(parsed, order="deterministic").decode()
    except (msgspec.MsgspecError, UnicodeError):
        return arguments or ""
