"""What every event has, and the values several events share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""A token's index in its model's vocabulary."""

LogProb = float
"""Natural logarithm of a probability; finite (engines send a floor, never -inf)."""

Json = dict[str, Any]
"""A free-form JSON object that travels unchanged."""

Outcome = Literal["succeeded", "failed", "abandoned", "errored"]
"""How a rollout ended: the agent's word, or what the processor observed."""

TokenSource = Literal["engine", "retokenized", "none"]
"""Who produced the ids. Only `engine` ids are the ones that were sampled."""

EventSource = str
"""Which service wrote the event, as `<service>` or `<service>/<instance>`."""


RawJson = msgspec.Raw | msgspec.UnsetType
"""JSON kept as bytes, or absent (`UNSET`). Read it with `raw_json`; `None` is not a value of it."""


def raw_json(value: RawJson | None) -> bytes | None:
    """The JSON bytes, or None where the field is absent or null."""
    if value is None or isinstance(value, msgspec.UnsetType):
        return None
    raw = bytes(value)
    return None if raw == b"null" else raw


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an event."""


class Event(Value, frozen=True, kw_only=True, tag_field="type"):
    """Base of every event."""

    event_id: str
    """UUIDv7 for what happened in the world, derived for what follows from the log."""
    event_time_ms: int
    """Unix milliseconds, UTC, at which it happened at its source."""
    source: EventSource
    schema_version: Literal[1] = 1


class PromptDelta(Value, frozen=True, kw_only=True):
    """A prompt, as what it keeps of an earlier step and what it appends (see `delta`)."""

    base_step_id: str | None
    """An earlier step of the same trajectory, or none: then everything is appended."""
    keep_tokens: int
    """How many ids of base's prompt + response ids begin this prompt."""
    append_ids: list[TokenId]
    keep_messages: int
    """How many of base's prompt messages + sampled message begin this prompt."""
    append_messages: list[msgspec.Raw]
    """Chat messages as the client sent them."""
    tools_kept: bool
    prompt_tokens: int
    """Length of the whole prompt; 0 where the engine gave no prompt ids."""
    tools: RawJson = msgspec.UNSET
    """The request's tool list; absent where it is the base's (`tools_kept`) or there was none."""
    digest: str
    """`ids_digest` of the whole prompt's ids: expansion is checked against it."""
