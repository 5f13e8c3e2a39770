"""Ids that a person's query over ClickHouse finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from agentworld.contract.errors import InvalidInput

_SELECTED = {"trajectory_id": "trajectory_ids", "group_id": "group_ids", "batch_id": "batch_ids"}


def selected_ids(
    client: Client, sql: str, *, columns: Sequence[str] = ("trajectory_id", "group_id")
) -> dict[str, Any]:
    """Ids that `sql` selects under one of the names in `columns`: `trajectory_ids` for `trajectory_id`, ….

    The query may only read. Raises `InvalidInput` for a query that fails, finds nothing, or finds
    something else.
    """
    try:
        result = client.query(sql, settings={"readonly": 1})
    except (ClickHouseError, OSError) as exc:
        raise InvalidInput(f"the query fails: {exc}", code="bad_query") from exc
    # ClickHouse names no columns where there are no rows.
    if not result.result_rows:
        raise InvalidInput("the query finds nothing", code="nothing_matched", status=404)
    names = [name for name in result.column_names if name in columns]
    if len(names) != 1:
        raise InvalidInput(
            f"the query gives the columns {', '.join(result.column_names)}: it must give one of "
            f"{', '.join(columns)}, and only one",
            code="bad_query",
        )
    index = list(result.column_names).index(names[0])
    ids = frozenset(str(row[index]) for row in result.result_rows)
    return {_SELECTED[names[0]]: ids}
