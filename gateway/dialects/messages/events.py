"""Server-sent events as Anthropic's clients expect them: an `event:` line, then the data."""

from __future__ import annotations

from typing import Any

import msgspec


def event(kind: str, **fields: Any) -> bytes:
    """One event; its data repeats the kind."""
    data = msgspec.json.encode({"type": kind, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
