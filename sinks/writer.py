"""Writes rows to ClickHouse; returns when they are durable, and singles out a row it refuses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, DataError

from agentworld.contract.errors import Unavailable
from agentworld.platform.log import Record
from agentworld.platform.metrics import counter, histogram
from sinks.rows.row import Row

_ROW_FAULTS = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        26,  # CANNOT_PARSE_QUOTED_STRING
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        33,  # CANNOT_READ_ALL_DATA
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        53,  # TYPE_MISMATCH
        69,  # ARGUMENT_OUT_OF_BOUND
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        117,  # INCORRECT_DATA
        128,  # TOO_LARGE_ARRAY_SIZE
        131,  # TOO_LARGE_STRING_SIZE
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        407,  # DECIMAL_OVERFLOW
        469,  # VIOLATED_CONSTRAINT
    }
)
"""Server errors that one row can cause. Every other error is the server's state: wait, lose nothing."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """A record and its rows."""

    record: Record
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record whose rows ClickHouse does not take, and why."""

    record: Record
    detail: str


class RowsRefused(Exception):
    """A row of an insert is at fault."""


class ClickHouseWriter:
    """Inserts by table. `connect` makes a client; after an error a new one is made."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None

    def write(self, batch: Sequence[Shaped]) -> list[Refusal]:
        """Return when every row is stored, but for the records returned, which were refused.

        Raises `Unavailable` when ClickHouse is away or cannot take anything now; what was stored
        by then is stored again by the repetition, which FINAL does not see.
        """
        try:
            self._insert_all(batch)
        except RowsRefused as exc:
            if len(batch) == 1:
                return [Refusal(batch[0].record, str(exc))]
            middle = len(batch) // 2
            return [*self.write(batch[:middle]), *self.write(batch[middle:])]
        return []

    def ping(self) -> None:
        """Raise `Unavailable` unless ClickHouse answers."""
        try:
            client = self._connect()
            try:
                client.command("SELECT 1")
            finally:
                client.close()
        except (ClickHouseError, OSError) as exc:
            raise Unavailable(f"ClickHouse does not answer: {exc}") from exc

    def close(self) -> None:
        """Release the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _insert_all(self, batch: Sequence[Shaped]) -> None:
        tables: dict[str, list[Row]] = defaultdict(list)
        for shaped in batch:
            for row in shaped.rows:
                tables[row.table].append(row)
        for table, rows in tables.items():
            self._insert(table, rows)

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        columns = list(rows[0].values)
        if self._client is None:
            self._client = self._connect()
        try:
            with histogram("sink_insert_seconds", "table").labels(table).time():
                self._client.insert(
                    table, [[row.values[name] for name in columns] for row in rows], column_names=columns
                )
        except (DataError, OverflowError, TypeError, ValueError) as exc:
            raise RowsRefused(f"{table}: {exc}") from exc
        except (ClickHouseError, OSError) as exc:
            self.close()
            if isinstance(exc, DatabaseError) and exc.code in _ROW_FAULTS:
                raise RowsRefused(f"{table}: {exc}") from exc
            raise Unavailable(f"ClickHouse did not store rows of {table}: {exc}") from exc
        counter("sink_rows", "table").labels(table).inc(len(rows))
