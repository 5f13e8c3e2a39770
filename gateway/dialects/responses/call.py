"""What one Responses call keeps of its request, to translate the answer back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from agentworld.contract.ids import new_id_time_ms
from gateway.canonical import ChatCall

_OPENAI_ID = re.compile(r"call_[A-Za-z0-9]{1,35}")
"""At most 40 characters in all, which the strictest clients keep."""


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """What the client calls a tool that the engine knows by its flat name."""

    name: str
    namespace: str | None = None
    kind: Literal["function", "custom"] = "function"


@dataclass(slots=True)
class ResponsesCall(ChatCall):
    """A chat call that came in as a Responses request."""

    minted: str = ""
    """UUIDv7 that every id of the answer is made of."""
    tool_origins: dict[str, ToolOrigin] = field(default_factory=dict)
    """By the name the engine knows."""
    echo: dict[str, Any] = field(default_factory=dict)
    """Request parameters that a response object repeats."""
    summarises: bool = False
    """Reasoning goes out as a summary, which the client asked for, rather than as raw text."""
    seals_reasoning: bool = False
    """The client keeps reasoning only by its `encrypted_content`."""
    never_incomplete: bool = False
    """The client ends its run on `response.incomplete`, so a cut answer counts as complete."""

    used_ids: frozenset[str] = frozenset()
    """Tool call ids in the conversation so far."""
    tool_ids: dict[int, str] = field(default_factory=dict)
    """Tool call ids as the client saw them, by the engine's tool index."""

    def tool_id(self, index: int, engine_id: str) -> str:
        """The client's id of a tool call: the engine's own, where it has OpenAI's form and is new.

        Any other is replaced: OpenClaw makes its own of ids that do not begin with `call_`, and
        engines may give none, or the same from turn to turn.
        """
        if index not in self.tool_ids:
            taken = engine_id in self.used_ids or engine_id in self.tool_ids.values()
            own = _OPENAI_ID.fullmatch(engine_id) is not None and not taken
            self.tool_ids[index] = engine_id if own else f"call_{self.stem}{index:02d}"
        return self.tool_ids[index]

    def seen_ids(self) -> list[str]:
        """Ids of the answer's tool calls as the client saw them, in order."""
        return [self.tool_ids[index] for index in sorted(self.tool_ids)]

    @property
    def response_id(self) -> str:
        """`resp_` and 32 hex digits."""
        return f"resp_{self.stem}"

    @property
    def stem(self) -> str:
        """The part that all ids of this answer share."""
        return self.minted.replace("-", "")

    @property
    def created_at(self) -> int:
        """Unix seconds, as the minted id says."""
        return new_id_time_ms(self.minted) // 1000
