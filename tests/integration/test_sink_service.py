"""`python -m sinks` as a process, over both brokers: kills, outages, a clean end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.clickhouse import connect
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from infra.local.embedded_broker import EMBEDDED_PARTITIONS, EMBEDDED_TOPIC_CONFIG, EmbeddedBroker
from infra.local.embedded_clickhouse import EmbeddedClickHouse
from tests.support.produce import produce_batches

pytestmark = pytest.mark.timeout(400)

_ROOT = Path(__file__).resolve().parents[2]


class SinkProcess:
    """One sink, its health port and its log."""

    def __init__(self, kafka: KafkaSettings, clickhouse: ClickHouseSettings, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._log = log
        self._environment = os.environ | {
            "AGENTWORLD_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "AGENTWORLD_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
            "AGENTWORLD_KAFKA_PARTITIONS": str(kafka.partitions),
            "AGENTWORLD_KAFKA_TOPIC_CONFIG": json.dumps(kafka.topic_config),
            "AGENTWORLD_CLICKHOUSE_URL": clickhouse.url,
            "AGENTWORLD_CLICKHOUSE_DATABASE": clickhouse.database,
            "AGENTWORLD_SINK_HEALTH_PORT": str(self.port),
            "AGENTWORLD_SINK_BATCH_ROWS": "20",
            "AGENTWORLD_SINK_BATCH_MS": "50",
            "AGENTWORLD_SINK_RETRY_MAX_MS": "300",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sinks"], cwd=_ROOT, env=self._environment, stdout=log, stderr=log
            )

    def signal(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def health(self) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=20) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def said(self) -> str:
        return self._log.read_text()


@pytest.fixture
def start_sink(tmp_path: Path) -> Iterator[Callable[[KafkaSettings, ClickHouseSettings], SinkProcess]]:
    started: list[SinkProcess] = []

    def start(kafka: KafkaSettings, clickhouse: ClickHouseSettings) -> SinkProcess:
        sink = SinkProcess(kafka, clickhouse, tmp_path / "sink.log")
        started.append(sink)
        sink.start()
        return sink

    yield start
    for sink in started:
        if sink.process is not None and sink.process.poll() is None:
            sink.process.kill()
            sink.process.wait()


def wait_for(what: Callable[[], bool], *, why: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + 240
    while not what():
        assert time.monotonic() < deadline, f"not in 240 s: {why()}"
        time.sleep(0.1)


def count(clickhouse: ClickHouseSettings, table: str) -> int:
    client = connect(clickhouse)
    try:
        return int(client.query(f"SELECT count() FROM {table} FINAL").result_rows[0][0])
    except Exception:
        return -1
    finally:
        client.close()


def _more_steps_than(clickhouse: ClickHouseSettings, least: int) -> bool:
    return count(clickhouse, "steps") > least


def assert_stored(clickhouse: ClickHouseSettings, batches: int) -> None:
    expected = {"steps": 18, "captures": 18, "trajectories": 6, "groups": 3, "batches": 1, "batch_members": 6}
    assert {table: count(clickhouse, table) for table in expected} == {
        table: rows * batches for table, rows in expected.items()
    }


async def test_everything_on_the_log_is_stored_and_the_sink_ends_cleanly(
    kafka: KafkaSettings, clickhouse: ClickHouseSettings, start_sink: Any
) -> None:
    sink = start_sink(kafka, clickhouse)
    ensure_topics(kafka)
    publisher = KafkaPublisher(kafka, client_id="test-producer")
    await publisher.publish(OutRecord(topic=TRAJECTORIES.name, key=b"k", value=b"not an event"))
    await publisher.close()
    await produce_batches(kafka, 2)
    wait_for(lambda: count(clickhouse, "batches") == 2, why=sink.said)
    wait_for(lambda: count(clickhouse, "steps") == 36, why=sink.said)
    wait_for(lambda: sink.health()[0] == 200, why=sink.health)
    wait_for(lambda: count(clickhouse, "captures") == 36, why=sink.said)
    assert_stored(clickhouse, 2)
    with urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/metrics") as reply:
        assert b'agentworld_sink_rows_total{table="steps"} 36' in reply.read()
    assert sink.signal(signal.SIGTERM) == 0
    assert "Traceback" not in sink.said()
    # The dead letter stands before its offset is committed, so it is there now.
    letters = [record.value for record in scan_topic(kafka, TRAJECTORIES, dead_letters=True)]
    assert letters == [b"not an event"]


async def test_killed_sink_loses_nothing_and_doubles_nothing(
    kafka: KafkaSettings, clickhouse: ClickHouseSettings, start_sink: Any
) -> None:
    ensure_topics(kafka)
    sink = start_sink(kafka, clickhouse)
    for batch in range(3):
        await produce_batches(kafka, 1, first=batch)
        wait_for(partial(_more_steps_than, clickhouse, 18 * batch), why=sink.said)
        assert sink.signal(signal.SIGKILL) == -signal.SIGKILL
        sink.start()
    wait_for(lambda: count(clickhouse, "batches") == 3, why=sink.said)
    wait_for(lambda: count(clickhouse, "steps") == 3 * 18, why=sink.said)
    wait_for(lambda: count(clickhouse, "captures") == 3 * 18, why=sink.said)
    assert sink.signal(signal.SIGTERM) == 0
    assert_stored(clickhouse, 3)


async def test_sink_waits_for_clickhouse_and_goes_on_by_itself(
    embedded_kafka: KafkaSettings, start_sink: Any, tmp_path: Path
) -> None:
    engine = EmbeddedClickHouse(tmp_path / "engine", tmp_path / "engine.log")
    engine.start()
    try:
        clickhouse = ClickHouseSettings(url=engine.url, database="agentworld_outage", connect_timeout_s=2)
        sink = start_sink(embedded_kafka, clickhouse)
        wait_for(lambda: sink.health()[0] == 200, why=sink.said)
        await produce_batches(embedded_kafka, 1)
        wait_for(lambda: count(clickhouse, "batches") == 1, why=sink.said)
        engine.kill()
        await produce_batches(embedded_kafka, 1, first=1)
        wait_for(lambda: sink.health()[0] == 503, why=sink.said)
        assert "ClickHouse" in sink.health()[1]["reason"]
        assert sink.process.poll() is None
        engine.start()
        wait_for(lambda: count(clickhouse, "batches") == 2, why=sink.said)
        wait_for(lambda: count(clickhouse, "steps") == 36, why=sink.said)
        wait_for(lambda: sink.health()[0] == 200, why=sink.health)
        wait_for(lambda: count(clickhouse, "captures") == 36, why=sink.said)
        assert sink.signal(signal.SIGTERM) == 0
        assert_stored(clickhouse, 2)
    finally:
        engine.stop()


def test_sink_waits_for_a_broker_that_is_not_there_and_still_ends_cleanly(
    clickhouse: ClickHouseSettings, start_sink: Any
) -> None:
    sink = start_sink(KafkaSettings(bootstrap="127.0.0.1:1", partitions=4), clickhouse)
    wait_for(lambda: sink.health()[0] == 503, why=sink.said)
    wait_for(lambda: "broker" in sink.health()[1].get("components", {}), why=sink.health)
    assert "127.0.0.1:1" in sink.health()[1]["reason"]
    assert sink.signal(signal.SIGTERM) == 0
    assert "Traceback" not in sink.said()


async def test_sink_outlives_a_broker_restart_and_ends_cleanly_without_one(
    clickhouse: ClickHouseSettings, start_sink: Any, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path / "broker", tmp_path / "broker.log") as broker:
        kafka = KafkaSettings(
            bootstrap=broker.bootstrap, partitions=EMBEDDED_PARTITIONS, topic_config=EMBEDDED_TOPIC_CONFIG
        )
        sink = start_sink(kafka, clickhouse)
        wait_for(lambda: sink.health()[0] == 200, why=sink.said)
        await produce_batches(kafka, 1)
        wait_for(lambda: count(clickhouse, "batches") == 1, why=sink.said)
        broker.stop()
        wait_for(lambda: sink.health()[0] == 503, why=sink.said)
        assert "Kafka" in sink.health()[1]["reason"]
        broker.start()
        await produce_batches(kafka, 1, first=1)
        wait_for(lambda: count(clickhouse, "steps") == 36, why=sink.said)
        wait_for(lambda: count(clickhouse, "batches") == 2, why=sink.said)
        wait_for(lambda: sink.health()[0] == 200, why=sink.health)
        broker.stop()
        assert sink.signal(signal.SIGTERM) == 0
        assert "Traceback" not in sink.said()
