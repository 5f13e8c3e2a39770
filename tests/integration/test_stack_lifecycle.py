"""The local stack: starts, heals, keeps its data, refuses a second one, leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agentworld.contract.topics import ALL_TOPICS
from agentworld.platform.clickhouse import connect
from agentworld.platform.kafka import admin_client, topic_name
from infra.local.foreground import detach, take_down
from infra.local.health import health_problem
from infra.local.stack import LocalStack, StackOptions
from infra.local.state import StackRuns, is_running, read_state

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "stack"
    take_down(tmp_path / "stack")


def _pids(stack: LocalStack) -> dict[str, int]:
    pids = {name: stack.process(name).pid for name in stack.process_names}
    assert all(pids.values())
    return {name: pid for name, pid in pids.items() if pid}


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != "zombie"}


def test_a_stack_starts_heals_keeps_its_data_and_leaves_no_process(data_dir: Path) -> None:
    before = _children()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = StackOptions(data_dir=data_dir, gateway_port=port, kafka_port=port, clickhouse_port=port)
        with LocalStack(options) as stack:
            assert stack.process_names == ["gateway", "processors", "sink", "clickhouse", "broker"]
            assert stack.problems() == {}
            addresses = [stack.gateway_url, stack.clickhouse.url, f"http://{stack.kafka.bootstrap}"]
            assert len(set(addresses)) == 3
            assert not any(address.endswith(f":{port}") for address in addresses)
            with pytest.raises(StackRuns, match=f"process {os.getpid()}"):
                LocalStack(StackOptions(data_dir=data_dir)).start()

            first = _pids(stack)
            stack.process("gateway").kill()
            stack.wait_healthy()
            after_gateway = _pids(stack)
            assert {name for name, pid in first.items() if after_gateway[name] != pid} == {"gateway"}

            stack.process("broker").kill()
            stack.wait_healthy()
            after_broker = _pids(stack)
            moved = {name for name, pid in after_gateway.items() if after_broker[name] != pid}
            assert moved == {"broker", "processors", "sink"}
            state = read_state(data_dir)
            assert state is not None
            assert {p.name: p.pid for p in state.processes} == after_broker

            client = connect(stack.clickhouse)
            client.command("CREATE TABLE kept (x UInt8) ENGINE = MergeTree ORDER BY x")
            client.command("INSERT INTO kept VALUES (7)")
            client.close()
    assert _children() <= before
    assert read_state(data_dir) is None

    with LocalStack(StackOptions(data_dir=data_dir)) as stack:
        client = connect(stack.clickhouse)
        assert client.command("SELECT x FROM kept") == 7
        client.close()
        topics = admin_client(stack.kafka).list_topics(timeout=20).topics
        assert {len(topics[topic_name(stack.kafka, spec.name)].partitions) for spec in ALL_TOPICS} == {4}
    assert _children() <= before


def test_what_a_killed_supervisor_left_is_ended_and_the_stack_starts_again(data_dir: Path) -> None:
    state = detach(StackOptions(data_dir=data_dir, gateways=2))
    assert health_problem(state.gateways[0]) is None
    assert health_problem(state.gateways[1]) is None
    with pytest.raises(StackRuns, match=f"process {state.supervisor_pid}"):
        detach(StackOptions(data_dir=data_dir))
    os.kill(state.supervisor_pid, signal.SIGKILL)
    psutil.Process(state.supervisor_pid).wait(20)
    assert not is_running(data_dir)
    left = [process for process in state.processes if process.is_alive]
    assert len(left) == 6
    with LocalStack(StackOptions(data_dir=data_dir)) as stack:
        assert set(stack.ended_orphans) == {process.name for process in left}
        assert stack.problems() == {}
    assert not any(process.is_alive for process in state.processes)


def test_the_commands_drive_a_stack_in_the_background(data_dir: Path) -> None:
    def agentworld(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = f"import typer; from agentworld.commands import stack; typer.run(stack.{command})"
        return subprocess.run(
            [sys.executable, "-c", program, "--data-dir", str(data_dir), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    nothing = agentworld("status")
    assert nothing.returncode == 1
    assert "agentworld up" in nothing.stderr
    up = agentworld("up", "--detach")
    assert up.returncode == 0, up.stderr
    assert "No engine is configured" in up.stdout
    status = agentworld("status", "--json")
    assert status.returncode == 0, status.stdout
    assert json.loads(status.stdout)["problems"] == {}
    again = agentworld("up")
    assert again.returncode == 1
    assert "a stack already runs" in again.stderr
    assert "agentworld down" in again.stderr
    assert "listening on" in agentworld("logs", "gateway").stdout
    assert "there are: " in agentworld("logs", "nothing").stderr
    assert "agentworld down" in agentworld("reset", "--yes").stderr
    assert agentworld("down").stdout.startswith("Stopped: gateway")
    assert "Nothing runs" in agentworld("down").stdout
    assert agentworld("reset", "--yes").returncode == 0
    assert list(data_dir.iterdir()) == []


def test_an_external_broker_that_is_away_is_named(data_dir: Path) -> None:
    options = StackOptions(data_dir=data_dir, kafka="127.0.0.1:1")
    with pytest.raises(Exception, match=r"no Kafka broker answers at 127\.0\.0\.1:1: check --kafka"):
        LocalStack(options).start()
    assert not is_running(data_dir)
