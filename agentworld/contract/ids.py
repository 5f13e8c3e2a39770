"""Identifiers. New things get UUIDv7 (RFC 9562 §5.7); outcomes get derived UUIDv8.

A derived id is a digest of what it names, so the same decision made twice has the
same id and its repetition changes nothing.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
import uuid

from agentworld.contract.errors import InvalidInput

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@=+-]{0,127}")
"""What a trajectory, prompt, run or channel may be called: it stands in paths and keys."""

_RAND_B_BITS = 62


class _Uuid7Clock:
    """Milliseconds and a 12-bit counter that never run backwards within a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def tick(self) -> int:
        with self._lock:
            now = time.time_ns()
            # 12 bits of sub-millisecond fraction (RFC 9562 §6.2 method 3).
            stamp = (now // 1_000_000 << 12) | ((now % 1_000_000) * 4096 // 1_000_000)
            self._last = max(stamp, self._last + 1)
            return self._last


_clock = _Uuid7Clock()


def new_id() -> str:
    """A UUIDv7 string; within one process each is greater than the one before."""
    stamp = _clock.tick()
    value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62
    return str(uuid.UUID(int=value | secrets.randbits(_RAND_B_BITS)))


def new_id_time_ms(identifier: str) -> int:
    """Unix milliseconds at which a UUIDv7 was minted."""
    return uuid.UUID(identifier).int >> 80


def derived_id(kind: str, *parts: str | int) -> str:
    """UUIDv8 from SHA-256 of `kind` and `parts`; equal input gives the equal id."""
    digest = hashlib.sha256("\x1f".join((kind, *map(str, parts))).encode()).digest()
    value = int.from_bytes(digest[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0b11 << 62) | 0b10 << 62
    return str(uuid.UUID(int=value))


def group_id(run_id: str, channel: str, round_index: int, prompt_id: str) -> str:
    """The group that trajectories of one prompt meet in."""
    return derived_id("group", run_id, channel, round_index, prompt_id)


def check_name(value: str, what: str) -> str:
    """`value`, or `InvalidInput` that says which name is wrong and what is allowed."""
    if not NAME_PATTERN.fullmatch(value):
        raise InvalidInput(
            f"{what} {value[:140]!r} is not a valid name: use 1 to 128 letters, digits or . _ : @ = + -, "
            "starting with a letter or digit",
            code="invalid_name",
            status=422,
        )
    return value
