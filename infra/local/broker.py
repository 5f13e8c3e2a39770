"""One broker process on loopback: what the embedded broker and Apache Kafka have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from agentworld.platform.settings import KafkaSettings
from infra.kafka.probe import answers
from infra.local.child import Child, LaunchError
from infra.local.ports import LOOPBACK, free_port, port_is_free

_STOP_TIMEOUT_S = 60.0


class LocalBroker(ABC):
    """Starting again keeps the data and the port."""

    title: ClassVar[str]
    """What messages call it."""
    start_timeout_s: ClassVar[float]
    client_settings: ClassVar[Mapping[str, object]] = {}
    """`KafkaSettings` that its clients need beside the address."""

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
        """Client settings for this broker."""
        return KafkaSettings.model_validate({"bootstrap": self.bootstrap, **self.client_settings, **changes})

    @abstractmethod
    def prepare(self) -> Child:
        """Make the data directory and the process to start. Raises `LaunchError` (what is missing)."""

    def start(self) -> None:
        """Return when it answers. Raises `LaunchError` (port taken, or what is missing)."""
        if not port_is_free(self.port):
            raise LaunchError(f"port {self.port} is taken: stop what listens there or choose another port")
        self._child = self.prepare()
        self._child.start()
        self._child.wait_ready(
            self.title, lambda: answers(LOOPBACK, self.port), timeout_s=self.start_timeout_s
        )

    def stop(self) -> None:
        """SIGTERM and wait: it writes its state on the way out."""
        if self._child:
            self._child.stop(timeout_s=_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL."""
        if self._child:
            self._child.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
