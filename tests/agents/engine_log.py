"""The engine's own account of each reply, one JSON line each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.support.engine.log import LogReader


class Served(msgspec.Struct, frozen=True, kw_only=True, tag="served"):
    """One reply as it was sampled."""

    id: str
    """The completion's id."""
    caller: str
    """The key that the request came with: one per run of a client."""
    kind: Literal["turn", "side"]
    model: str
    stream: bool
    messages: list[str]
    """JSON of each message, as it came."""
    tools: str
    """JSON of the tools, as it came; `null` where none came."""
    prompt_ids: list[int]
    response_ids: list[int]
    """As far as it was sent, where the client went away."""
    logprobs: list[float]
    message: dict[str, Any]
    """The turn as far as it was sent, put together from its tokens."""
    finish_reason: str
    """`abort` where the client went away."""
    offered: list[str]
    """Names of the tools in the request."""
    called: list[str]
    """Names of the tools called."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """A request this engine has no answer for."""

    caller: str
    path: str
    status: int


Entry = Served | Refused


def read_log(path: Path, caller: str) -> Sequence[Entry]:
    """What was noted of that caller so far."""
    return [entry for entry in LogReader(path, Entry).new() if entry.caller == caller]
