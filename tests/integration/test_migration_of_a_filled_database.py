"""A database that was filled under an older schema is brought up to date with its rows intact."""

from __future__ import annotations

from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from agentworld.contract.events import TrajectorySealed
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.batch_archive import BatchArchive
from agentworld.platform.clickhouse import connect
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.settings import ClickHouseSettings
from sinks.rows.build import build_rows
from sinks.rows.row import Row
from sinks.schema import migrate, shipped_migrations
from tests.support import builders as b

TREE_IS_NEW_IN = 6
BRANCHES_ARE_NEW_IN = 8


def insert_as_then(client: Client, rows: list[Row]) -> None:
    """Insert what a sink of that schema would have: only the columns there are."""
    for row in rows:
        there = client.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {t:String}",
            parameters={"t": row.table},
        ).result_columns[0]
        columns = [name for name in row.values if name in there]
        client.insert(row.table, [[row.values[name] for name in columns]], column_names=columns)


def contents(client: Client, table: str, columns: str) -> list[tuple[Any, ...]]:
    return list(client.query(f"SELECT {columns} FROM {table} FINAL ORDER BY ALL").result_rows)


@pytest.mark.parametrize("before", [5, 7])
async def test_rows_of_an_older_schema_are_intact_after_the_upgrade(
    clickhouse: ClickHouseSettings, memory_log: InMemoryLog, before: int
) -> None:
    shipped = shipped_migrations()
    assert migrate(clickhouse, shipped[:before]) == [migration.name for migration in shipped[:before]]
    client = connect(clickhouse)
    event: TrajectorySealed = b.sealed(b.rollout("t-1"), reward=0.5)
    member = b.member(event, memory_log.append(OutRecord.of(TRAJECTORIES, event)))
    (record,) = memory_log.records(TRAJECTORIES.name)
    insert_as_then(client, build_rows(record))
    columns = {
        table: ", ".join(
            client.query(
                "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {t:String} "
                "ORDER BY position",
                parameters={"t": table},
            ).result_columns[0]
        )
        for table in ("steps", "trajectories")
    }
    old = {table: contents(client, table, names) for table, names in columns.items()}
    assert [len(rows) for rows in old.values()] == [3, 1]

    assert migrate(clickhouse) == [migration.name for migration in shipped[before:]]

    assert {table: contents(client, table, names) for table, names in columns.items()} == old
    assert client.query("SELECT count(), any(reward) FROM steps_final").result_rows == [(3, 0.5)]
    stored = BatchArchive(client).trajectory(member)
    assert stored is not None
    assert [step.response_ids for step in stored.steps] == [p.step.response_ids for p in event.steps]
    knows_tree = before >= TREE_IS_NEW_IN
    assert [step.trained for step in stored.steps] == [knows_tree] * 3
    assert (stored.trained_branch is not None) == knows_tree
    assert (len(stored.branches) > 0) == (before >= BRANCHES_ARE_NEW_IN)
