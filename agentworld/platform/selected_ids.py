"""Ids that a person's query over ClickHouse finds."""

from __future__ import annotations

from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from agentworld.contract.errors import InvalidInput

_COLUMNS = {"trajectory_id": "trajectory_ids", "group_id": "group_ids"}


def selected_ids(client: Client, sql: str) -> dict[str, Any]:
    """`trajectory_ids` or `group_ids`: what `sql` selects under the name `trajectory_id` or `group_id`.

    The query may only read. Raises `InvalidInput` for a query that fails, finds nothing, or finds
    something else.
    """
    try:
        result = client.query(sql, settings={"readonly": 1})
    except (ClickHouseError, OSError) as exc:
        raise InvalidInput(f"the query fails: {exc}", code="bad_query") from exc
    names = [name for name in result.column_names if name in _COLUMNS]
    if len(names) != 1:
        raise InvalidInput(
            f"the query gives the columns {', '.join(result.column_names)}: it must give trajectory_id or "
            "group_id, and not both",
            code="bad_query",
        )
    index = list(result.column_names).index(names[0])
    ids = frozenset(str(row[index]) for row in result.result_rows)
    if not ids:
        raise InvalidInput("the query finds nothing", code="nothing_matched", status=404)
    return {_COLUMNS[names[0]]: ids}
