"""Typed reading of request fields, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.contract.errors import InvalidInput

_ROOT = " - at `$"


def invalid(message: str) -> InvalidInput:
    """A 400 for a request that cannot be understood or translated."""
    return InvalidInput(message, code="invalid_request", status=400)


def read(fields: Mapping[str, msgspec.Raw], name: str, expected: Any) -> Any:
    """Field `name` as `expected`, or None where it is absent or null. Raises `InvalidInput`."""
    raw = fields.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=expected)
    except msgspec.MsgspecError as exc:
        raise invalid(field_error(name, exc)) from exc


def field_error(name: str, error: msgspec.MsgspecError) -> str:
    """msgspec's words, with its path below `$` turned into the path of the field."""
    what, found, path = str(error).partition(_ROOT)
    return f"`{name}{path[:-1] if found else ''}`: {what[:1].lower()}{what[1:]}"
