"""What a supervisor keeps alive: a broker, the ClickHouse engine, a service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import psutil

from infra.kafka.probe import answers
from infra.local.broker import LocalBroker
from infra.local.child import Child, LaunchError
from infra.local.embedded_broker import EmbeddedBroker
from infra.local.embedded_clickhouse import EmbeddedClickHouse
from infra.local.health import health_problem
from infra.local.plan import ServiceSpec
from infra.local.ports import LOOPBACK, port_is_free

_SERVICE_STOP_S = 40.0


class Unit(Protocol):
    """One supervised process. `start` may return before it is healthy."""

    name: str
    url: str
    log_path: Path

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        ...

    def start(self) -> None:
        """Start it, raising `AgentWorldError` where that is impossible."""
        ...

    def problem(self) -> str | None:
        """None when it is able to work, otherwise why not."""
        ...

    def stop(self) -> None:
        """Stop it in order."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        ...


class BrokerUnit:
    """Either broker."""

    name = "broker"

    def __init__(self, launcher: LocalBroker, log_path: Path) -> None:
        self._launcher = launcher
        self.log_path = log_path
        self.url = launcher.bootstrap
        self.loses_its_tail = isinstance(launcher, EmbeddedBroker)
        """After a kill it returns to an earlier state."""

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._launcher.pid if self._launcher.alive else None

    def start(self) -> None:
        """Return when it answers."""
        self._launcher.start()

    def problem(self) -> str | None:
        """Whether it answers ApiVersions."""
        if self.pid is None:
            return "not running"
        return None if answers(LOOPBACK, self._launcher.port) else f"no answer on {self.url}"

    def stop(self) -> None:
        """SIGTERM and wait."""
        self._launcher.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._launcher.kill()


class ClickHouseUnit:
    """The ClickHouse engine."""

    name = "clickhouse"

    def __init__(self, data_dir: Path, log_path: Path, port: int) -> None:
        self._launcher = EmbeddedClickHouse(data_dir, log_path, http_port=port)
        self.log_path = log_path
        self.url = f"http://{LOOPBACK}:{port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._launcher.pid

    def start(self) -> None:
        """Return when it answers."""
        self._launcher.start()

    def problem(self) -> str | None:
        """It runs; `start` returned when it answered."""
        return None if self.pid else "not running"

    def stop(self) -> None:
        """Shut down in order."""
        self._launcher.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._launcher.kill()


class ServiceUnit:
    """One of our services."""

    def __init__(self, spec: ServiceSpec, log_path: Path) -> None:
        self.spec = spec
        self.name = spec.name
        self.url = spec.url
        self.log_path = log_path
        self._child = Child(spec.argv, env=os.environ | spec.environment, log_path=log_path)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._child.pid if self._child.alive else None

    def start(self) -> None:
        """Start it; `problem` says when it is healthy."""
        if not port_is_free(self.spec.port):
            raise LaunchError(f"{self.name}: port {self.spec.port} is taken by another process")
        self._child.start()

    def problem(self) -> str | None:
        """What `/health` says."""
        if self.pid is None:
            code = self._child.returncode
            return "not running" if code is None else f"ended with code {code}"
        return health_problem(self.url)

    def stop(self) -> None:
        """SIGTERM and wait for its drain."""
        self._child.stop(timeout_s=_SERVICE_STOP_S)

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()


def started_at(pid: int) -> float | None:
    """When a process started (seconds since the epoch), which with its pid identifies it."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None
