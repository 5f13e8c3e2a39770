"""Wire protocols that clients speak, one module or package each, behind `Dialect`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from gateway.dialects.base import ClientStream, Dialect, parsed
from gateway.dialects.chat_completions import ChatCompletions
from gateway.dialects.completions import Completions
from gateway.dialects.generate import Generate
from gateway.dialects.messages import Messages
from gateway.dialects.responses import Responses


def dialects(*, inner_system: Literal["system", "user"] = "system") -> Mapping[str, Dialect]:
    """Every dialect, by its path behind `/v1/`. `inner_system`: see `Responses` and `Messages`."""
    every: tuple[Dialect, ...] = (
        ChatCompletions(),
        Responses(inner_system=inner_system),
        Messages(inner_system=inner_system),
        Completions(),
        Generate(),
    )
    return MappingProxyType({dialect.path: dialect for dialect in every})


DIALECTS = dialects()

__all__ = [
    "DIALECTS",
    "ChatCompletions",
    "ClientStream",
    "Completions",
    "Dialect",
    "Generate",
    "Messages",
    "Responses",
    "dialects",
    "parsed",
]
