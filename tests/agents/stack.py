"""What the clients run against: the scripted engine, an embedded broker and the gateway."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from agentworld.client import AgentWorld
from agentworld.contract.codec import decode
from agentworld.contract.events import StepCaptured
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings
from infra.local.child import Child
from infra.local.embedded_broker import EMBEDDED_PARTITIONS, EmbeddedBroker
from infra.local.ports import LOOPBACK, free_port

_READY_S = 60.0
_STOP_S = 15.0


class Stack:
    """Starts on entry, stops on exit. Without a gateway the clients speak to the engine itself."""

    def __init__(self, directory: Path, *, gateway: bool, reasoning: bool) -> None:
        self._directory = directory
        self._gateway_port = free_port() if gateway else None
        self._engine_port = free_port(exclude=[self._gateway_port or 0])
        self.engine_log = directory / "engine.jsonl"
        self._engine = Child(
            [
                *(sys.executable, "-m", "tests.agents.engine", "--port", str(self._engine_port)),
                *("--log", str(self.engine_log), *(["--reasoning"] if reasoning else [])),
            ],
            env=os.environ,
            log_path=directory / "engine.log",
        )
        self._broker = EmbeddedBroker(directory / "broker", directory / "broker.log")
        self.kafka = KafkaSettings(bootstrap=self._broker.bootstrap, partitions=EMBEDDED_PARTITIONS)
        self._gateway = Child(
            [sys.executable, "-m", "gateway"], env=self._gateway_env(), log_path=directory / "gateway.log"
        )

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self._gateway_port or self._engine_port}"

    def _gateway_env(self) -> dict[str, str]:
        return os.environ | {
            "AGENTWORLD_GATEWAY_HOST": LOOPBACK,
            "AGENTWORLD_GATEWAY_PORT": str(self._gateway_port),
            "AGENTWORLD_GATEWAY_INSTANCE": "agent-tests",
            "AGENTWORLD_GATEWAY_UPSTREAM_URL": f"http://{LOOPBACK}:{self._engine_port}/v1",
            "AGENTWORLD_GATEWAY_SPOOL_DIR": str(self._directory / "spool"),
            "AGENTWORLD_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "AGENTWORLD_KAFKA_TOPIC_PREFIX": self.kafka.topic_prefix,
            "AGENTWORLD_KAFKA_PARTITIONS": str(self.kafka.partitions),
            "AGENTWORLD_KAFKA_TOPIC_CONFIG": json.dumps(self.kafka.topic_config),
        }

    def __enter__(self) -> Self:
        try:
            self._engine.start()
            if self._gateway_port:
                self._broker.start()
                self._gateway.start()
                self._gateway.wait_ready("the gateway", lambda: _healthy(self._url), timeout_s=_READY_S)
            engine = f"http://{LOOPBACK}:{self._engine_port}"
            self._engine.wait_ready("the scripted engine", lambda: _healthy(engine), timeout_s=_READY_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._gateway.stop(timeout_s=_STOP_S)
        self._engine.stop(timeout_s=_STOP_S)
        self._broker.stop()

    def register(self, prompt_id: str) -> tuple[str, str]:
        """A new trajectory: its id, and the base URL for its client, without `/v1`."""
        if not self._gateway_port:
            return "", f"{self._url}/direct/{prompt_id}"
        trajectory = AgentWorld(self._url).trajectory(prompt_id=prompt_id, run_id="agent-tests").__enter__()
        return trajectory.trajectory_id, trajectory.base_url.removesuffix("/v1")

    def captured(self, trajectory_id: str) -> Sequence[StepCaptured]:
        """The steps of a trajectory in the log, in order of time; repetitions included."""
        steps = []
        for record in scan_topic(self.kafka, TRAJECTORY_EVENTS):
            if record.value is not None and trajectory_id.encode() in record.value:
                event = decode(TRAJECTORY_EVENTS, record.value)
                if isinstance(event, StepCaptured) and event.trajectory_id == trajectory_id:
                    steps.append(event)
        return sorted(steps, key=lambda step: (step.started_at_ms, step.step_id))


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
