"""The embedded engine keeps no logs about itself: they cost CPU at rest and outgrow the data."""

from __future__ import annotations

from agentworld.platform.clickhouse import connect


def test_no_system_log_is_kept(clickhouse):
    client = connect(clickhouse, database="system")
    client.query("SELECT 1")
    logs = client.query(
        "SELECT name FROM system.tables WHERE database = 'system' AND engine LIKE '%MergeTree'"
    )
    assert logs.result_rows == []
