"""What a row is, and the columns that every row has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import Event, RawJson, raw_json
from agentworld.platform.log import Record

_TIME_BITS = 42
_OFFSET_BITS = 20
_TIME_MASK = (1 << _TIME_BITS) - 1
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_MAX_VERSION = 2 ** (64 - _TIME_BITS) - 1

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Row:
    """One row: table, and values by column name. Rows of a table have the same columns."""

    table: str
    values: dict[str, Any]

    def size_bytes(self) -> int:
        """About what the row costs while it waits: text and arrays."""
        return sum(
            8 * len(value) if isinstance(value, list) else len(value)
            for value in self.values.values()
            if isinstance(value, list | str)
        )


def json_text(value: Any) -> str:
    """`value` as JSON."""
    return _encoder.encode(value).decode()


def raw_text(value: RawJson | bytes | None) -> str:
    """JSON as it came, empty for none."""
    raw = value if isinstance(value, bytes) else raw_json(value)
    return "" if raw is None else raw.decode()


def raw_array(values: Sequence[bytes]) -> str:
    """A JSON array of values that are JSON already."""
    return b"".join((b"[", b",".join(values), b"]")).decode()


def origin(record: Record, event: Event, *, version: int | None = None) -> dict[str, Any]:
    """Columns that say where and when a row comes from, and what it replaces.

    Without `version` the later record wins. Time goes before the offset: a broker that lost its
    tail gives the same offsets again, to newer records. With `version` the higher version wins,
    then the later record.
    """
    return {
        "event_time": event.event_time_ms,
        "kafka_topic": record.topic,
        "kafka_partition": record.partition,
        "kafka_offset": record.offset,
        "row_version": row_version(record, version),
    }


def row_version(record: Record, version: int | None) -> int:
    """64 bits that order the rows of one key; see `origin`."""
    time_ms = record.timestamp_ms & _TIME_MASK
    if version is None:
        return time_ms << _OFFSET_BITS | record.offset & _OFFSET_MASK
    if not 0 <= version <= _MAX_VERSION:
        raise MalformedEvent(f"version {version} is not between 0 and {_MAX_VERSION}")
    return version << _TIME_BITS | time_ms
