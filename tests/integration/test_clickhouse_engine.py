"""The embedded engine: keeps what it acknowledged, refuses a second owner, limits the analyst."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from agentworld.contract.errors import Unavailable
from agentworld.platform.clickhouse import connect
from agentworld.platform.settings import ClickHouseSettings
from infra.local.embedded_clickhouse import EmbeddedClickHouse


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedClickHouse]:
    engine = EmbeddedClickHouse(tmp_path / "data", tmp_path / "engine.log")
    engine.start()
    yield engine
    engine.stop()
    assert engine.pid is None


def rows(engine: EmbeddedClickHouse, user: str = "default") -> int:
    client = connect(ClickHouseSettings(url=engine.url, user=user), database="default")
    return int(client.query("SELECT count() FROM agentworld_x.t").result_rows[0][0])


def fill(engine: EmbeddedClickHouse) -> None:
    client = connect(ClickHouseSettings(url=engine.url), database="default")
    client.command("CREATE DATABASE agentworld_x")
    client.command("CREATE TABLE agentworld_x.t (a UInt32) ENGINE = MergeTree ORDER BY a")
    client.insert("t", [[1], [2]], column_names=["a"], database="agentworld_x")


def test_acknowledged_rows_outlive_a_stop_and_a_kill(engine: EmbeddedClickHouse) -> None:
    fill(engine)
    engine.stop()
    engine.start()
    assert rows(engine) == 2
    engine.kill()
    engine.start()
    assert rows(engine) == 2


def test_second_engine_on_the_same_directory_is_refused(engine: EmbeddedClickHouse, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="in use by another engine"):
        EmbeddedClickHouse(tmp_path / "data", tmp_path / "second.log").start()
    fill(engine)
    assert rows(engine) == 2


def test_two_engines_run_side_by_side(engine: EmbeddedClickHouse, tmp_path: Path) -> None:
    other = EmbeddedClickHouse(tmp_path / "other", tmp_path / "other.log")
    other.start()
    try:
        assert other.url != engine.url
    finally:
        other.stop()


def test_taken_port_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port} is taken"):
            EmbeddedClickHouse(tmp_path / "data", tmp_path / "engine.log", http_port=port).start()


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO agentworld_x.t VALUES (3)",
        "DROP TABLE agentworld_x.t",
        "SELECT * FROM file('/etc/hostname', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT 1 SETTINGS max_execution_time = 3600",
        "SELECT 1 SETTINGS readonly = 0",
        "SYSTEM SHUTDOWN",
    ],
)
def test_analyst_reads_within_limits_and_nothing_else(engine: EmbeddedClickHouse, sql: str) -> None:
    fill(engine)
    assert rows(engine, "analyst") == 2
    analyst = connect(ClickHouseSettings(url=engine.url, user="analyst"), database="default")
    with pytest.raises(DatabaseError):
        analyst.command(sql)
    assert rows(engine) == 2


def test_services_cannot_stop_the_engine(engine: EmbeddedClickHouse) -> None:
    client = connect(ClickHouseSettings(url=engine.url), database="default")
    with pytest.raises(DatabaseError, match="SYSTEM SHUTDOWN"):
        client.command("SYSTEM SHUTDOWN")
