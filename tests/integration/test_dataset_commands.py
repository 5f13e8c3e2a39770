"""`agentworld dataset` over the embedded broker and the ClickHouse engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from agentworld.commands.dataset import app
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.clickhouse import connect
from agentworld.platform.kafka import admin_client, ensure_topics
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from sinks.rows.build import build_rows
from sinks.schema import migrate
from sinks.writer import ClickHouseWriter, Shaped
from tests.support import builders as b
from tests.support.produce import produce_batches


@pytest.fixture
def servers(
    monkeypatch: pytest.MonkeyPatch, embedded_kafka: KafkaSettings, clickhouse: ClickHouseSettings
) -> KafkaSettings:
    """The command's environment: this broker and this database."""
    monkeypatch.setenv("AGENTWORLD_KAFKA_BOOTSTRAP", embedded_kafka.bootstrap)
    monkeypatch.setenv("AGENTWORLD_KAFKA_TOPIC_PREFIX", embedded_kafka.topic_prefix)
    monkeypatch.setenv("AGENTWORLD_CLICKHOUSE_URL", clickhouse.url)
    monkeypatch.setenv("AGENTWORLD_CLICKHOUSE_DATABASE", clickhouse.database)
    ensure_topics(embedded_kafka)
    migrate(clickhouse)
    return embedded_kafka


def sink(kafka: KafkaSettings, clickhouse: ClickHouseSettings) -> None:
    records = [record for spec in (TRAJECTORIES, READY_BATCHES) for record in scan_topic(kafka, spec)]
    writer = ClickHouseWriter(lambda: connect(clickhouse))
    assert writer.write([Shaped(record, build_rows(record)) for record in records]) == []


def forget(kafka: KafkaSettings, *topics: str) -> None:
    """The log loses what it held: as after its retention, to a reader."""
    admin = admin_client(kafka)
    for deleted in admin.delete_topics([f"{kafka.topic_prefix}{topic}" for topic in topics]).values():
        deleted.result(timeout=30)
    ensure_topics(kafka)


def run(*arguments: str, folder: Path) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--dir", str(folder)])
    assert "Traceback" not in result.output
    return result


async def test_from_the_log_and_from_clickhouse_come_the_same_bytes(
    servers: KafkaSettings, clickhouse: ClickHouseSettings, tmp_path: Path
) -> None:
    await produce_batches(servers, 2)
    sink(servers, clickhouse)
    made = run("create", "words", "--run", b.RUN, "--channel", b.CHANNEL, folder=tmp_path / "log")
    assert made.exit_code == 0, made.output
    assert "words@v1: 36 steps of 12 trajectories, 6 groups, 2 batches" in made.stdout
    again = run("create", "words", "--run", b.RUN, folder=tmp_path / "log")
    assert "no new version" in again.stdout
    forget(servers, TRAJECTORIES.name, READY_BATCHES.name)
    archived = run("create", "words", "--run", b.RUN, folder=tmp_path / "clickhouse")
    assert archived.exit_code == 0, archived.output
    files = [tmp_path / source / "words" / "v1" / "data.parquet" for source in ("log", "clickhouse")]
    assert files[0].read_bytes() == files[1].read_bytes()


async def test_sql_chooses_and_is_kept_and_bad_sql_is_one_line(
    servers: KafkaSettings, clickhouse: ClickHouseSettings, tmp_path: Path
) -> None:
    first, _ = await produce_batches(servers, 2)
    sink(servers, clickhouse)
    batches = f"SELECT batch_id FROM batches_final WHERE sequence = {first.sequence}"
    assert run("create", "by-batch", "--sql", batches, folder=tmp_path).exit_code == 0
    rewarded = "SELECT trajectory_id FROM trajectories_final WHERE reward = 1"
    assert run("create", "by-reward", "--sql", rewarded, folder=tmp_path).exit_code == 0
    manifests = {
        name: json.loads((tmp_path / name / "v1" / "manifest.json").read_bytes())
        for name in ("by-batch", "by-reward")
    }
    assert manifests["by-batch"]["provenance"]["batch_ids"] == [first.batch_id]
    assert manifests["by-batch"]["provenance"]["sql"] == batches
    assert manifests["by-reward"]["trajectories"] == 6
    for sql, why in (
        ("SELECT nope FROM nowhere", "the query fails"),
        ("DROP TABLE steps", "the query fails"),
        ("SELECT 1 AS one", "it must give one of batch_id, trajectory_id, group_id"),
        ("SELECT batch_id FROM batches_final WHERE sequence = 99", "finds nothing"),
    ):
        refused = run("create", "bad", "--sql", sql, folder=tmp_path)
        assert refused.exit_code == 2, refused.output
        assert why in refused.stderr
    assert connect(clickhouse).query("SELECT count() FROM steps FINAL").result_rows == [(36,)]
    assert not (tmp_path / "bad").exists()


async def test_a_trajectory_that_nobody_has_leaves_no_version(servers: KafkaSettings, tmp_path: Path) -> None:
    (batch,) = await produce_batches(servers, 1)
    forget(servers, TRAJECTORIES.name)
    failed = run("create", "words", "--batch", batch.batch_id, folder=tmp_path)
    assert failed.exit_code == 1
    assert "6 of 6 trajectories cannot be resolved" in failed.stderr
    assert "not in ClickHouse either" in failed.stderr
    assert list(tmp_path.iterdir()) == []


async def test_list_show_and_export_say_what_there_is(servers: KafkaSettings, tmp_path: Path) -> None:
    await produce_batches(servers, 1)
    folder = tmp_path / "datasets"
    assert "no dataset in" in run("list", folder=folder).stdout
    assert "say which batches" in run("create", "words", folder=folder).stderr
    assert run("create", "words", "--run", b.RUN, folder=folder).exit_code == 0
    assert "words@v1" in run("list", folder=folder).stdout
    shown = run("show", "words", folder=folder)
    assert shown.exit_code == 0, shown.output
    assert "files are as they were written" in shown.stdout
    target = tmp_path / "words.jsonl"
    exported = run("export", "words@v1", "--format", "jsonl", "--to", str(target), folder=folder)
    assert exported.exit_code == 0, exported.output
    assert len(target.read_bytes().splitlines()) == 18
    refused = run("export", "words", "--to", str(target), folder=folder)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    with (folder / "words" / "v1" / "data.parquet").open("ab") as file:
        file.write(b"x")
    changed = run("show", "words", folder=folder)
    assert changed.exit_code == 1
    assert "data.parquet was changed" in changed.stderr
