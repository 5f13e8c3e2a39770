"""The state of one processor in a Faust table: every key carries its partition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from agentworld.contract.events import Place
from agentworld.platform.log import OutRecord
from stream_processors.effects import StateKey

_encode_key = msgspec.json.Encoder().encode
_decode_key = msgspec.json.Decoder(list[int | str]).decode


class StateTable:
    """Reads what Faust recovered from the changelog topic, and says what to write there.

    Faust recovers the table. Changes are written to the changelog by the outbox, which waits for the
    broker's acknowledgement, and are noted here when they are durable.
    """

    def __init__(self, table: Any, *, changelog: str, changelog_full_name: str) -> None:
        self._table = table
        self._changelog = changelog
        self._full_name = changelog_full_name

    def entries(self, partition: int) -> dict[StateKey, bytes]:
        """What is stored for a partition."""
        found: dict[StateKey, bytes] = {}
        for raw_key, value in self._table.data.items():
            owner, *key = _decode_key(raw_key)
            if owner == partition and value is not None:
                found[tuple(map(str, key))] = value
        return found

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget what is stored for other partitions: another worker changes it now."""
        data = self._table.data
        for raw_key in [key for key in data if _decode_key(key)[0] not in partitions]:
            del data[raw_key]

    def change(self, partition: int, key: StateKey, value: bytes | None) -> OutRecord:
        """The changelog record of a change."""
        raw_key = _encode_key((partition, *key))
        return OutRecord(
            topic=self._changelog,
            key=raw_key,
            value=value or b"",
            partition=partition,
            tombstone=value is None,
        )

    def note(self, change: OutRecord, place: Place) -> None:
        """The change is durable at `place`."""
        if change.tombstone:
            self._table.data.pop(change.key, None)
        else:
            self._table.data[change.key] = change.value
        # Recovery after a rebalance starts here, not at where the last recovery ended.
        offsets = self._table.app.tables.recovery.active_offsets
        for changelog_partition in offsets:
            if changelog_partition == (self._full_name, place.partition):
                offsets[changelog_partition] = place.offset
                break
