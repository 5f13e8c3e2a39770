"""Where the golden files are, and dialects whose ids count up."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from gateway.dialects.messages import Messages

GOLDEN = Path(__file__).parent / "golden"
STOPS = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stop_sequences":["END"]}'


def counted_ids() -> Callable[[], str]:
    """Ids `0001`, `0002`, …"""
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):04}"


def dialect() -> Messages:
    return Messages(new_id=counted_ids())
