"""Server-sent events as Anthropic's clients expect them: an `event:` line, then the data."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_LINE_ENDS = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")


def event(kind: str, **fields: Any) -> bytes:
    """One event; its data repeats the kind."""
    data = msgspec.json.encode({"type": kind, **fields})
    if not data.isascii():
        # Some clients cut lines wherever Unicode has one: U+0085, U+2028, U+2029.
        data = _LINE_ENDS.sub(lambda end: b"\\u%04x" % ord(end[0].decode()), data)
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
