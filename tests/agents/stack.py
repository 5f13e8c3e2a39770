"""What the clients run against: the scripted engine, an embedded broker, the gateway, a relay before it."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from agentworld.client import AgentWorld
from agentworld.contract.codec import decode
from agentworld.contract.events import StepCaptured
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.scan import scan_topic
from infra.local.child import Child
from infra.local.embedded_broker import EmbeddedBroker
from infra.local.ports import LOOPBACK
from tests.agents.wire import Exchange, Wire

_READY_S = 60.0
_STOP_S = 15.0
_KEEPALIVE_MS = 100
PAUSE_MS = 300
"""The engine's silences within a turn: longer than the gateway waits with a keep-alive."""
_LISTENING = re.compile(rb"listening on (http://127\.0\.0\.1:(\d+))")


class Stack:
    """Starts on entry, stops on exit. Without a gateway the clients speak to the engine itself."""

    def __init__(self, directory: Path, *, gateway: bool, reasoning: bool) -> None:
        self._directory = directory
        self._with_gateway = gateway
        self._reasoning = reasoning
        self._running = ExitStack()
        self._wire: Wire | None = None
        self._engine_url = ""
        self.engine_log = directory / "engine.jsonl"
        self._broker = EmbeddedBroker(directory / "broker", directory / "broker.log")
        self.kafka = self._broker.settings()

    def _start(self, name: str, argv: Sequence[str], env: dict[str, str]) -> tuple[str, int]:
        """Start a service at a port of its choice: its URL and port, once it is healthy."""
        log = self._directory / f"{name}.log"
        child = Child([sys.executable, "-m", *argv], env=os.environ | env, log_path=log)
        self._running.callback(child.stop, timeout_s=_STOP_S)
        child.start()
        child.wait_ready(name, lambda: _LISTENING.search(log.read_bytes()) is not None, timeout_s=_READY_S)
        found = _LISTENING.search(log.read_bytes())
        assert found is not None
        url = found[1].decode()
        child.wait_ready(name, lambda: _healthy(url), timeout_s=_READY_S)
        return url, int(found[2])

    def _gateway_env(self) -> dict[str, str]:
        return {
            "AGENTWORLD_GATEWAY_HOST": LOOPBACK,
            "AGENTWORLD_GATEWAY_PORT": "0",
            "AGENTWORLD_GATEWAY_INSTANCE": "agent-tests",
            "AGENTWORLD_GATEWAY_UPSTREAM_URL": f"{self._engine_url}/v1",
            "AGENTWORLD_GATEWAY_SPOOL_DIR": str(self._directory / "spool"),
            "AGENTWORLD_GATEWAY_KEEPALIVE_MS": str(_KEEPALIVE_MS),
            "AGENTWORLD_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "AGENTWORLD_KAFKA_TOPIC_PREFIX": self.kafka.topic_prefix,
            "AGENTWORLD_KAFKA_PARTITIONS": str(self.kafka.partitions),
            "AGENTWORLD_KAFKA_TOPIC_CONFIG": json.dumps(self.kafka.topic_config),
            "AGENTWORLD_KAFKA_IDLE_FETCH_MS": str(self.kafka.idle_fetch_ms),
        }

    def __enter__(self) -> Self:
        try:
            argv = ["tests.agents.engine", "--log", str(self.engine_log), "--pause-ms", str(PAUSE_MS)]
            argv += ["--reasoning"] if self._reasoning else []
            self._engine_url, _ = self._start("engine", argv, {})
            if self._with_gateway:
                self._running.callback(self._broker.stop)
                self._broker.start()
                _, port = self._start("gateway", ["gateway"], self._gateway_env())
                self._wire = self._running.enter_context(Wire(port))
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def register(self, prompt_id: str) -> tuple[str, str]:
        """A new trajectory: its id, and the base URL for its client, without `/v1`."""
        if self._wire is None:
            return "", f"{self._engine_url}/direct/{prompt_id}"
        gateway = AgentWorld(f"http://{LOOPBACK}:{self._wire.port}")
        trajectory = gateway.trajectory(prompt_id=prompt_id, run_id="agent-tests").__enter__()
        return trajectory.trajectory_id, trajectory.base_url.removesuffix("/v1")

    def exchanges(self, url: str) -> Sequence[Exchange]:
        """What went over the wire under a base URL that `register` gave."""
        return self._wire.exchanges(_path(url)) if self._wire else ()

    def talking(self, url: str) -> bool:
        """Whether a connection on which a client used that base URL is still open."""
        return self._wire is not None and self._wire.is_open(_path(url))

    def captured(self, trajectory_id: str) -> Sequence[StepCaptured]:
        """The steps of a trajectory in the log, in order of time; repetitions included."""
        steps = []
        for record in scan_topic(self.kafka, TRAJECTORY_EVENTS):
            if record.value is not None and trajectory_id.encode() in record.value:
                event = decode(TRAJECTORY_EVENTS, record.value)
                if isinstance(event, StepCaptured) and event.trajectory_id == trajectory_id:
                    steps.append(event)
        return sorted(steps, key=lambda step: (step.started_at_ms, step.step_id))


def _path(url: str) -> str:
    return "/" + url.split("://", 1)[1].split("/", 1)[1] + "/"


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
