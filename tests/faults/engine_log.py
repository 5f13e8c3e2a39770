"""The faulty engine's own account of each call."""

from __future__ import annotations

from typing import Literal

import msgspec


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    """The engine has read a request."""

    mark: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """What became of it."""

    mark: str
    id: str
    """The completion's id."""
    prompt_ids: list[int]
    response_ids: list[int]
    """As far as they were sent."""
    logprobs: list[float]
    text: str
    """What those ids say."""
    end: Literal["whole", "cancelled", "faulty"]
    """`cancelled`: the gateway closed the connection first. `faulty`: ended as it had been asked to."""


Entry = Began | Ended
