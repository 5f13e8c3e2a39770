"""What the faults happen to: the scripted engine, a broker, and a gateway for each row."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from agentworld.contract.codec import decode
from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Event
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings
from infra.kafka.apache import ApacheKafka
from infra.local.child import Child
from infra.local.embedded_broker import EMBEDDED_TOPIC_CONFIG, EmbeddedBroker
from infra.local.ports import LOOPBACK, free_port
from tests.faults.engine_log import Began, Ended, Entry
from tests.support.engine.log import EngineLog, LogReader
from tests.support.gateway_process import GatewayProcess

BrokerKind = Literal["embedded", "apache"]
_PARTITIONS = 4
_READY_S = 60.0
_STOP_S = 15.0
_SETTLED_S = 30.0
_READABLE_S = 60.0
_POLL_S = 0.02


class Stack:
    """Starts engine and broker on entry; on exit ends them and every gateway that still runs."""

    def __init__(self, directory: Path, *, broker: BrokerKind) -> None:
        self._directory = directory
        kind = EmbeddedBroker if broker == "embedded" else ApacheKafka
        self.broker = kind(directory / "broker", directory / "broker.log")
        # The embedded broker would forget records of a long row; none may go before it is judged.
        self._topics = EMBEDDED_TOPIC_CONFIG | {"retention.bytes": "-1"} if broker == "embedded" else {}
        # As the local stack has it: that broker may lose what it acknowledged last.
        self._gateway_settings: dict[str, object] = {"spool_keep_ms": 5_000} if broker == "embedded" else {}
        port = free_port(exclude=[self.broker.port])
        log = directory / "engine.jsonl"
        EngineLog(log).close()
        self.watch = EngineWatch(LogReader(log, Entry))
        self._engine_url = f"http://{LOOPBACK}:{port}"
        self._engine = Child(
            [*(sys.executable, "-m", "tests.faults.engine"), *("--port", str(port), "--log", str(log))],
            env=os.environ,
            log_path=directory / "engine.log",
        )
        self._gateways: list[GatewayProcess] = []

    def __enter__(self) -> Self:
        try:
            self._engine.start()
            self.broker.start()
            self._engine.wait_ready("the scripted engine", self._engine_answers, timeout_s=_READY_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for gateway in self._gateways:
            gateway.end_now()
        self._engine.stop(timeout_s=_STOP_S)
        self.thaw_broker()
        self.broker.stop()

    def _engine_answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._engine_url}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kafka(self, row: str) -> KafkaSettings:
        """Topics of that row's own."""
        settings = self.broker.settings(partitions=_PARTITIONS, topic_prefix=f"{row}.")
        return settings.model_copy(update={"topic_config": self._topics})

    def gateway(self, row: str, **settings: object) -> GatewayProcess:
        """A gateway for that row, not started yet. It keeps port and spool when started again."""
        port = free_port()
        spool = self._directory / f"spool-{row}"
        settings = self._gateway_settings | settings
        gateway = GatewayProcess(self.kafka(row), f"{self._engine_url}/v1", spool, port=port, **settings)
        self._gateways.append(gateway)
        return gateway

    def freeze_broker(self) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        assert self.broker.pid is not None
        os.kill(self.broker.pid, signal.SIGSTOP)

    def thaw_broker(self) -> None:
        """SIGCONT."""
        if self.broker.alive and self.broker.pid is not None:
            os.kill(self.broker.pid, signal.SIGCONT)

    def events(self, row: str) -> Sequence[Event]:
        """All of the row's `trajectory-events`."""
        deadline = time.monotonic() + _READABLE_S
        while True:
            try:
                records = list(scan_topic(self.kafka(row), TRAJECTORY_EVENTS))
            except Unavailable:  # a broker that has just come back may not lead its partitions yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return [decode(TRAJECTORY_EVENTS, record.value) for record in records if record.value]


class EngineWatch:
    """Follows the engine's log while a row runs."""

    def __init__(self, reader: LogReader[Entry]) -> None:
        self._reader = reader
        self._began: dict[str, int] = {}
        self._ended: list[Ended] = []

    def _look(self) -> None:
        for entry in self._reader.new():
            if isinstance(entry, Began):
                self._began[entry.mark] = self._began.get(entry.mark, 0) + 1
            else:
                self._ended.append(entry)

    async def began(self, mark: str) -> None:
        """Return once the engine has read the call."""
        while mark not in self._began:
            self._look()
            await asyncio.sleep(_POLL_S)

    async def settled(self) -> tuple[list[Ended], int]:
        """What ended since it was asked last, once nothing is under way; and how many calls still are."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            self._look()
            open_calls = sum(self._began.values()) - len(self._ended)
            if open_calls == 0 or time.monotonic() > deadline:
                ended, self._ended = self._ended, []
                self._began.clear()
                return ended, open_calls
            await asyncio.sleep(_POLL_S)
