"""Fixtures shared by all tests: the log (fake, embedded, Apache) and ClickHouse.

Brokers and the ClickHouse engine are started once a session, and only if a test asks for them. Each
test gets its own topic prefix or database. What is missing (Java, a wheel) fails; nothing is skipped.
`AGENTWORLD_TEST_KAFKA=docker` runs Apache Kafka in a container instead of from Maven's jars.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentworld.platform.clickhouse import connect
from agentworld.platform.kafka import admin_client
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from infra.kafka.apache import ApacheKafka
from infra.local.embedded_broker import (
    EMBEDDED_IDLE_FETCH_MS,
    EMBEDDED_PARTITIONS,
    EMBEDDED_TOPIC_CONFIG,
    EmbeddedBroker,
)

_PARTITIONS = EMBEDDED_PARTITIONS
_KAFKA_IMAGE = "apache/kafka:4.1.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"kafka", "embedded_kafka", "apache_kafka"}:
            item.add_marker(pytest.mark.broker)
        if "apache_kafka" in fixtures:
            item.add_marker(pytest.mark.apache)


@pytest.fixture
def memory_log() -> InMemoryLog:
    """The in-memory fake."""
    return InMemoryLog(partitions=_PARTITIONS)


@pytest.fixture(scope="session")
def embedded_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the session's embedded broker."""
    root = tmp_path_factory.mktemp("embedded-broker")
    with EmbeddedBroker(root / "data", root / "broker.log") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def apache_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the session's Apache Kafka."""
    if os.environ.get("AGENTWORLD_TEST_KAFKA") == "docker":
        yield from _kafka_in_docker()
        return
    root = tmp_path_factory.mktemp("apache-kafka")
    with ApacheKafka(root / "data", root / "kafka.log") as broker:
        yield broker.bootstrap


def _kafka_in_docker() -> Iterator[str]:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import wait_for

    from infra.kafka.probe import answers
    from infra.local.ports import LOOPBACK, free_port

    port = free_port()
    container = DockerContainer(_KAFKA_IMAGE).with_bind_ports(9092, port)
    for name, value in {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{LOOPBACK}:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }.items():
        container = container.with_env(name, value)
    with container:
        wait_for(lambda: answers(LOOPBACK, port))
        yield f"{LOOPBACK}:{port}"


def _topics_of_one_test(
    bootstrap: str, topic_config: dict[str, str], *, idle_fetch_ms: int = 0
) -> Iterator[KafkaSettings]:
    settings = KafkaSettings(
        bootstrap=bootstrap,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        partitions=_PARTITIONS,
        topic_config=topic_config,
        idle_fetch_ms=idle_fetch_ms,
    )
    yield settings
    admin = admin_client(settings)
    mine = [name for name in admin.list_topics(timeout=30).topics if name.startswith(settings.topic_prefix)]
    if mine:
        for deleted in admin.delete_topics(mine).values():
            deleted.result(timeout=30)


@pytest.fixture
def embedded_kafka(embedded_bootstrap: str) -> Iterator[KafkaSettings]:
    """The embedded broker, under a topic prefix of this test's own."""
    yield from _topics_of_one_test(
        embedded_bootstrap, EMBEDDED_TOPIC_CONFIG, idle_fetch_ms=EMBEDDED_IDLE_FETCH_MS
    )


@pytest.fixture
def apache_kafka(apache_bootstrap: str) -> Iterator[KafkaSettings]:
    """Real Apache Kafka, under a topic prefix of this test's own."""
    yield from _topics_of_one_test(apache_bootstrap, {})


@pytest.fixture(
    params=["embedded", pytest.param("apache", marks=pytest.mark.apache)],
)
def kafka(request: pytest.FixtureRequest) -> KafkaSettings:
    """Each broker in turn."""
    settings: KafkaSettings = request.getfixturevalue(f"{request.param}_kafka")
    return settings


@pytest.fixture(scope="session")
def clickhouse_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the session's ClickHouse engine."""
    from infra.local.embedded_clickhouse import EmbeddedClickHouse

    root: Path = tmp_path_factory.mktemp("clickhouse")
    engine = EmbeddedClickHouse(root / "data", root / "clickhouse.log")
    engine.start()
    try:
        yield engine.url
    finally:
        engine.stop()


@pytest.fixture
def clickhouse(clickhouse_engine: str) -> Iterator[ClickHouseSettings]:
    """ClickHouse with an empty database of this test's own."""
    settings = ClickHouseSettings(url=clickhouse_engine, database=f"t_{uuid.uuid4().hex[:12]}")
    client = connect(settings, database="default")
    client.command(f"CREATE DATABASE {settings.database}")
    yield settings
    client.command(f"DROP DATABASE IF EXISTS {settings.database} SYNC")
    client.close()
