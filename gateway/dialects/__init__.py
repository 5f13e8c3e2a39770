"""Wire protocols that clients speak, one module each, behind `Dialect`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.dialects.base import ClientStream, Dialect
from gateway.dialects.chat_completions import ChatCompletions

DIALECTS: Mapping[str, Dialect] = MappingProxyType({d.path: d for d in (ChatCompletions(),)})
"""By the path behind `/{trajectory_id}/{prompt_id}/v1/`."""

__all__ = ["DIALECTS", "ChatCompletions", "ClientStream", "Dialect"]
