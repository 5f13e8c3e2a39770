"""Server-sent events as Anthropic's clients expect them: an `event:` line, then the data."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.sse import sse_event


def event(kind: str, **fields: Any) -> bytes:
    """One event; its data repeats the kind."""
    return sse_event(msgspec.json.encode({"type": kind, **fields}), kind)
