"""The embedded broker: noida-db's Kafka service, one static binary from PyPI.

After `kill` treat its last second as lost: it comes back at an earlier consistent state.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

from agentworld.platform.settings import KafkaSettings
from infra.kafka.probe import answers
from infra.local.child import Child, LaunchError
from infra.local.ports import LOOPBACK, free_port, port_is_free

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 60.0

EMBEDDED_TOPIC_CONFIG = {
    # It rewrites its state as one file, so what it retains must stay small (about 50 MB compressed).
    "segment.bytes": str(1024 * 1024),
    "retention.bytes": str(8 * 1024 * 1024),
}
"""Topic configuration for this broker; `retention.bytes` counts per partition."""

EMBEDDED_IDLE_FETCH_MS = 100
"""It answers an empty fetch at once; without a pause an idle consumer would keep a core busy."""

EMBEDDED_PARTITIONS = 4
"""Partitions of each topic on this broker."""


def broker_binary() -> Path:
    """The binary from the wheel. Raises `LaunchError` saying what to install."""
    spec = importlib.util.find_spec("noida_db")
    if spec is None or spec.origin is None:
        raise LaunchError(
            "the embedded broker is not installed: pip install 'agentworld[embedded]' "
            "(package noida-db), or use a broker of your own with --kafka HOST:PORT"
        )
    binary = Path(spec.origin).with_name("noida-db")
    if not os.access(binary, os.X_OK):
        raise LaunchError(
            f"the embedded broker has no program for this platform ({platform.system()} "
            f"{platform.machine()}): {binary} is missing. Use --broker apache (Java 17 and Maven) "
            "or --kafka HOST:PORT"
        )
    return binary


class EmbeddedBroker:
    """One broker on loopback. Starting again uses the same data directory and port."""

    def __init__(self, data_dir: Path, log_path: Path, port: int | None = None) -> None:
        self._data_dir = Path(data_dir).absolute()
        self._log_path = Path(log_path)
        self.port = port or free_port()
        self._child: Child | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id, once started."""
        return self._child.pid if self._child else None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.alive

    def settings(self, **changes: object) -> KafkaSettings:
        """Client settings with the topic configuration this broker needs."""
        fields: dict[str, object] = {
            "bootstrap": self.bootstrap,
            "partitions": EMBEDDED_PARTITIONS,
            "topic_config": EMBEDDED_TOPIC_CONFIG,
            "idle_fetch_ms": EMBEDDED_IDLE_FETCH_MS,
        }
        return KafkaSettings.model_validate(fields | changes)

    def start(self) -> None:
        """Return when it answers. Raises `LaunchError` (wheel, platform, port taken)."""
        binary = broker_binary()
        if not port_is_free(self.port):
            raise LaunchError(f"port {self.port} is taken: stop what listens there or choose another port")
        home = self._data_dir / "home"
        home.mkdir(parents=True, exist_ok=True)
        self._child = Child(
            [
                str(binary),
                "start",
                *("--data-dir", str(self._data_dir)),
                *("--host", LOOPBACK),
                *("--only", "kafka"),
                *("--kafka-port", str(self.port)),
            ],
            env={"HOME": str(home), "PATH": os.environ.get("PATH", "")},
            log_path=self._log_path,
            cwd=self._data_dir,
        )
        self._child.start()
        self._child.wait_ready(
            "the embedded broker", lambda: answers(LOOPBACK, self.port), timeout_s=_START_TIMEOUT_S
        )

    def stop(self) -> None:
        """SIGTERM and wait: it writes its state on the way out."""
        if self._child:
            self._child.stop(timeout_s=_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL."""
        if self._child:
            self._child.kill()

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
