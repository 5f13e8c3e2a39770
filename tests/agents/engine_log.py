"""The engine's own account of each reply, one JSON line each."""

from __future__ import annotations

from typing import Literal

import msgspec


class Served(msgspec.Struct, frozen=True, kw_only=True, tag="served"):
    """One reply as it was sampled."""

    id: str
    """The completion's id."""
    kind: Literal["turn", "side"]
    model: str
    stream: bool
    prompt_ids: list[int]
    response_ids: list[int]
    """As far as it was sent, where the client went away."""
    logprobs: list[float]
    finish_reason: str
    """`abort` where the client went away."""
    offered: list[str]
    """Names of the tools in the request."""
    called: list[str]
    """Names of the tools called."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """A request this engine has no answer for."""

    path: str
    status: int


Entry = Served | Refused
