"""Which processes make up a stack, with which ports and environment. Pure: nothing is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from infra.local.embedded_broker import EMBEDDED_IDLE_FETCH_MS, EMBEDDED_PARTITIONS, EMBEDDED_TOPIC_CONFIG
from infra.local.options import StackOptions
from infra.local.ports import LOOPBACK

_PARTITIONS = EMBEDDED_PARTITIONS
_SPOOL_KEEP_MS = 5_000
_INSTANCE_PORT_STEP = 10

ChoosePort = Callable[[int], int]
"""The preferred port where it may be had, otherwise another one; never the same twice."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One service process."""

    name: str
    module: str
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    reads_log: bool = False
    """It holds positions in the log, so it starts again when the log returns to an earlier state."""

    @property
    def url(self) -> str:
        """Where its `/health` and `/metrics` are."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def argv(self) -> list[str]:
        """Its command line."""
        return [sys.executable, "-m", self.module]


@dataclass(frozen=True, slots=True)
class StackPlan:
    """All of a stack. `*_port` is None where a server is used that runs already."""

    kafka: KafkaSettings
    clickhouse: ClickHouseSettings
    kafka_port: int | None
    clickhouse_port: int | None
    services: tuple[ServiceSpec, ...]

    @property
    def gateway_urls(self) -> list[str]:
        """One per gateway."""
        return [spec.url for spec in self.services if spec.module == "gateway"]


def plan_stack(options: StackOptions, choose: ChoosePort, *, evaluators: bool = False) -> StackPlan:
    """The plan for these options. `evaluators`: whether the rules file has any."""
    kafka_port = None if options.kafka else choose(options.kafka_port)
    clickhouse_port = None if options.clickhouse else choose(options.clickhouse_port)
    kafka = _kafka(options, kafka_port)
    clickhouse = ClickHouseSettings(url=options.clickhouse or f"http://{LOOPBACK}:{clickhouse_port}")
    shared = {
        "AGENTWORLD_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "AGENTWORLD_CLICKHOUSE_URL": clickhouse.url,
        "AGENTWORLD_KAFKA_IDLE_FETCH_MS": str(kafka.idle_fetch_ms),
        "PYTHONUNBUFFERED": "1",
    }
    if kafka.partitions is not None:
        shared["AGENTWORLD_KAFKA_PARTITIONS"] = str(kafka.partitions)
    if kafka.topic_config:
        shared["AGENTWORLD_KAFKA_TOPIC_CONFIG"] = json.dumps(kafka.topic_config)
    data_dir = options.data_dir.absolute()
    services = [
        *(_gateway(options, data_dir, index, choose) for index in range(options.gateways)),
        *(_processor(options, data_dir, index, choose) for index in range(options.processors)),
        *([_evaluators(options, data_dir, choose)] if evaluators else []),
        _sink(choose),
    ]
    return StackPlan(
        kafka=kafka,
        clickhouse=clickhouse,
        kafka_port=kafka_port,
        clickhouse_port=clickhouse_port,
        services=tuple(
            ServiceSpec(
                name=spec.name,
                module=spec.module,
                port=spec.port,
                reads_log=spec.reads_log,
                environment=shared | dict(spec.environment) | options.environment,
            )
            for spec in services
        ),
    )


def _kafka(options: StackOptions, port: int | None) -> KafkaSettings:
    if options.kafka:
        return KafkaSettings(bootstrap=options.kafka)
    bootstrap = f"{LOOPBACK}:{port}"
    if options.broker == "apache":
        return KafkaSettings(bootstrap=bootstrap, partitions=_PARTITIONS)
    return KafkaSettings(
        bootstrap=bootstrap,
        partitions=_PARTITIONS,
        topic_config=EMBEDDED_TOPIC_CONFIG,
        idle_fetch_ms=EMBEDDED_IDLE_FETCH_MS,
    )


def _gateway(options: StackOptions, data_dir: Path, index: int, choose: ChoosePort) -> ServiceSpec:
    port = choose(options.gateway_port + index * _INSTANCE_PORT_STEP)
    environment = {
        "AGENTWORLD_GATEWAY_HOST": LOOPBACK,
        "AGENTWORLD_GATEWAY_PORT": str(port),
        "AGENTWORLD_GATEWAY_INSTANCE": str(index),
        "AGENTWORLD_GATEWAY_SPOOL_DIR": str(data_dir / "spool"),
    }
    if options.upstream_url:
        environment["AGENTWORLD_GATEWAY_UPSTREAM_URL"] = options.upstream_url
    if options.broker == "embedded" and not options.kafka:
        environment["AGENTWORLD_GATEWAY_SPOOL_KEEP_MS"] = str(_SPOOL_KEEP_MS)
    return ServiceSpec(_numbered("gateway", index, options.gateways), "gateway", port, environment)


def _processor(options: StackOptions, data_dir: Path, index: int, choose: ChoosePort) -> ServiceSpec:
    port = choose(8701 + index * _INSTANCE_PORT_STEP)
    environment = {
        "AGENTWORLD_PROCESSORS_INSTANCE": str(index),
        "AGENTWORLD_PROCESSORS_HEALTH_PORT": str(port),
        "AGENTWORLD_PROCESSORS_DATA_DIR": str(data_dir / "processors" / str(index)),
    }
    if options.rules is not None:
        environment["AGENTWORLD_PROCESSORS_RULES_FILE"] = str(options.rules.absolute())
    name = _numbered("processors", index, options.processors)
    return ServiceSpec(name, "stream_processors", port, environment, reads_log=True)


def _evaluators(options: StackOptions, data_dir: Path, choose: ChoosePort) -> ServiceSpec:
    port = choose(8703)
    environment = {
        "AGENTWORLD_EVALUATORS_HEALTH_PORT": str(port),
        "AGENTWORLD_EVALUATORS_DATA_DIR": str(data_dir / "evaluators"),
    }
    if options.rules is not None:
        environment["AGENTWORLD_EVALUATORS_RULES_FILE"] = str(options.rules.absolute())
    return ServiceSpec("evaluators", "stream_processors.evaluators", port, environment, reads_log=True)


def _sink(choose: ChoosePort) -> ServiceSpec:
    port = choose(8702)
    environment = {"AGENTWORLD_SINK_INSTANCE": "0", "AGENTWORLD_SINK_HEALTH_PORT": str(port)}
    return ServiceSpec("sink", "sinks", port, environment, reads_log=True)


def _numbered(name: str, index: int, count: int) -> str:
    return name if count == 1 else f"{name}-{index}"
