"""How deeply nested an event its readers follow."""

from __future__ import annotations

import sys

_READER_LEVELS = 4_000
"""Python admits 1,000 levels, call frames included. The gateway takes what it can read within them."""


def follow_deep_nesting() -> None:
    """Readers call this first: they follow every event that a gateway was able to write."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _READER_LEVELS))
