"""Asking a broker by its address whether it answers."""

from __future__ import annotations

from urllib.parse import urlsplit

from infra.kafka.probe import answers


def broker_problem(address: str) -> str | None:
    """None when the broker at `host:port` answers."""
    parts = urlsplit(f"//{address}")
    return None if answers(parts.hostname or "", parts.port or 9092) else f"no answer at {address}"
