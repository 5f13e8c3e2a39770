"""Events to bytes and back, in one place. JSON, so that any Kafka tool can read a topic."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import Event
from agentworld.contract.topics import TopicSpec

_encoder = msgspec.json.Encoder()

HEADER_FIELDS = ("type", "schema_version", "event_id", "trajectory_id", "group_id", "batch_id")
"""Fields repeated as record headers, so that a consumer can skip a record without parsing it."""


def encode(event: Event) -> bytes:
    """The event as JSON. Equal events give equal bytes."""
    return _encoder.encode(event)


@cache
def _decoder(spec: TopicSpec) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(spec.events)


def decode(spec: TopicSpec, value: bytes | None) -> Any:
    """The event in `value`, one of `spec.events`. Raises `MalformedEvent`.

    Unknown fields are ignored; an unknown `type` or `schema_version` is malformed here.
    """
    if not value:
        raise MalformedEvent(f"{spec.name}: record has no value", reason="empty")
    try:
        return _decoder(spec).decode(value)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        raise MalformedEvent(f"{spec.name}: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise MalformedEvent(f"{spec.name}: not UTF-8: {exc}") from exc
    except RecursionError as exc:
        raise MalformedEvent(f"{spec.name}: nested too deeply") from exc


def record_key(spec: TopicSpec, event: Event) -> bytes:
    """The key under which `event` is published."""
    return spec.key(event).encode()


def record_headers(event: Event) -> list[tuple[str, bytes]]:
    """Hot fields of `event`, as record headers."""
    headers: list[tuple[str, bytes]] = [("type", str(event.__struct_config__.tag).encode())]
    for name in HEADER_FIELDS[1:]:
        value = getattr(event, name, None)
        if value is not None:
            headers.append((name, str(value).encode()))
    return headers
