"""Model lists in OpenAI's shape: read, merged, written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec


class _Listed(msgspec.Struct):
    data: list[dict[str, Any]]


def listed_models(body: bytes) -> dict[str, dict[str, Any]]:
    """The entries of an engine's list by id; none where it cannot be read."""
    try:
        entries = msgspec.json.decode(body, type=_Listed).data
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {entry["id"]: entry for entry in entries if isinstance(entry.get("id"), str)}


def entries_of(names: Iterable[str], engine_entry: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """One entry per name; what the engine says of its model (`max_model_len`, …) stands in each."""
    shown = {"object": "model", "created": 0, "owned_by": "agentworld", **(engine_entry or {})}
    shown.pop("permission", None)
    return [{**shown, "id": name} for name in names]


def model_list(entries: Sequence[Mapping[str, Any]]) -> bytes:
    """`{"object": "list", "data": […]}`; the first entry of an id counts."""
    first: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        first.setdefault(entry["id"], entry)
    return msgspec.json.encode({"object": "list", "data": list(first.values())})
