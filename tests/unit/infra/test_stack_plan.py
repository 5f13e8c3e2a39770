"""The plan of a stack follows from its options alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.local.log_files import bound
from infra.local.options import StackOptions
from infra.local.plan import StackPlan, plan_stack
from infra.local.state import ProcessState
from infra.local.units import started_at


def _plan(tmp_path: Path, **options: object) -> StackPlan:
    return plan_stack(StackOptions.model_validate({"data_dir": tmp_path} | options), lambda port: port)


def _environment(plan: StackPlan, name: str) -> dict[str, str]:
    (spec,) = [spec for spec in plan.services if spec.name == name]
    return dict(spec.environment)


def test_the_embedded_broker_gets_small_topics_and_the_gateway_keeps_its_tail(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    assert [spec.name for spec in plan.services] == ["gateway", "processors", "sink"]
    gateway = _environment(plan, "gateway")
    assert gateway["AGENTWORLD_GATEWAY_SPOOL_KEEP_MS"] == "5000"
    assert gateway["AGENTWORLD_KAFKA_PARTITIONS"] == "4"
    assert json.loads(gateway["AGENTWORLD_KAFKA_TOPIC_CONFIG"]).keys() >= {"segment.bytes", "retention.bytes"}
    assert gateway["AGENTWORLD_KAFKA_IDLE_FETCH_MS"] != "0"


@pytest.mark.parametrize("options", [{"broker": "apache"}, {"kafka": "kafka.example:9092"}])
def test_real_kafka_gets_none_of_that(tmp_path: Path, options: dict[str, str]) -> None:
    gateway = _environment(_plan(tmp_path, **options), "gateway")
    assert "AGENTWORLD_GATEWAY_SPOOL_KEEP_MS" not in gateway
    assert "AGENTWORLD_KAFKA_TOPIC_CONFIG" not in gateway
    assert gateway["AGENTWORLD_KAFKA_IDLE_FETCH_MS"] == "0"


def test_servers_that_run_already_are_used_and_not_started(tmp_path: Path) -> None:
    plan = _plan(tmp_path, kafka="kafka.example:9092", clickhouse="http://ch.example:8123")
    assert (plan.kafka_port, plan.clickhouse_port) == (None, None)
    sink = _environment(plan, "sink")
    assert sink["AGENTWORLD_KAFKA_BOOTSTRAP"] == "kafka.example:9092"
    assert sink["AGENTWORLD_CLICKHOUSE_URL"] == "http://ch.example:8123"


def test_each_replica_has_its_own_instance_and_port(tmp_path: Path) -> None:
    plan = _plan(tmp_path, gateways=2, processors=3)
    assert len({spec.port for spec in plan.services}) == 6
    instances = [spec.environment.get("AGENTWORLD_PROCESSORS_INSTANCE") for spec in plan.services[2:5]]
    assert instances == ["0", "1", "2"]
    assert len(plan.gateway_urls) == 2


def test_the_callers_environment_wins(tmp_path: Path) -> None:
    plan = _plan(tmp_path, environment={"AGENTWORLD_GATEWAY_SPOOL_KEEP_MS": "0"})
    assert _environment(plan, "gateway")["AGENTWORLD_GATEWAY_SPOOL_KEEP_MS"] == "0"


def test_a_process_is_known_by_pid_and_start_so_a_reused_pid_is_not_ours(tmp_path: Path) -> None:
    import os

    mine = started_at(os.getpid())
    assert mine
    fields = {"name": "x", "pid": os.getpid(), "url": "", "log": tmp_path, "state": "running"}
    assert ProcessState.model_validate(fields | {"started_at": mine}).is_alive
    assert not ProcessState.model_validate(fields | {"started_at": mine - 60}).is_alive


def test_a_log_that_grew_too_large_is_moved_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 10)
        bound(path, max_bytes=20)
        writer.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert path.with_name("gateway.log.1").read_bytes() == b"old\n" * 10
