"""The local stack: everything on one machine, for people, tests and the demo.

with LocalStack(StackOptions(data_dir=directory)) as stack:
    ... stack.gateway_url, stack.kafka, stack.clickhouse ...
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from agentworld.contract.errors import Unavailable
from agentworld.platform.clickhouse import connect
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings
from infra.kafka.apache import ApacheKafka
from infra.kafka.probe import answers
from infra.local.embedded_broker import EmbeddedBroker
from infra.local.options import StackOptions
from infra.local.plan import StackPlan, plan_stack
from infra.local.ports import PortLeases
from infra.local.rules_file import check_rules_file
from infra.local.state import (
    DirectoryLock,
    ProcessState,
    StackState,
    end_orphans,
    read_state,
    remove_state,
    write_state,
)
from infra.local.supervisor import Supervised, Supervisor
from infra.local.units import BrokerUnit, ClickHouseUnit, ServiceUnit, Unit, started_at

__all__ = ["LocalStack", "StackOptions", "StackProcess"]

_START_TIMEOUT_S = 90.0


class StackProcess:
    """One process of a stack, seen from outside."""

    def __init__(self, supervised: Supervised) -> None:
        self._supervised = supervised

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._supervised.unit.pid

    @property
    def restarts(self) -> int:
        """How often the supervisor started it again."""
        return self._supervised.restarts

    def kill(self) -> None:
        """kill -9, as a crash does it; returns when it is dead. The supervisor starts it again, at once.

        A process that is killed often on purpose is not given up as one that cannot work.
        """
        pid = self.pid
        if pid is None:
            return
        self._supervised.deaths.clear()
        os.kill(pid, signal.SIGKILL)
        while self._supervised.unit.pid == pid:
            time.sleep(0.01)


class LocalStack:
    """A stack and its supervisor, which runs in a thread of this process."""

    def __init__(self, options: StackOptions) -> None:
        self.options = options.model_copy(update={"data_dir": options.data_dir.absolute()})
        self.ended_orphans: list[str] = []
        """Names of processes that a killed supervisor had left, ended at this start."""
        self._lock = DirectoryLock(self.options.data_dir)
        self._ports = PortLeases()
        self._plan: StackPlan | None = None
        self._supervisor: Supervisor | None = None
        self._phase: Literal["starting", "running", "stopping"] = "starting"
        self._writing = threading.Lock()

    def start(self) -> None:
        """Return when everything is healthy.

        Raises `InvalidInput` for a rules file that makes no sense, `StackRuns` where the directory is in
        use, `LaunchError` or `Unavailable` saying what to do.
        """
        evaluators = check_rules_file(self.options.rules, os.environ | self.options.environment)
        self._lock.acquire()
        try:
            self._recover()
            self._plan = plan = plan_stack(self.options, self._ports.choose, evaluators=evaluators)
            _check_external(self.options, plan)
            self._supervisor = Supervisor(
                self._units(plan),
                on_change=self._write,
                prepare_log=lambda: ensure_topics(plan.kafka),
            )
            self._supervisor.start(timeout_s=_START_TIMEOUT_S)
            self._phase = "running"
            self._write()
        except BaseException:
            remove_state(self.options.data_dir)
            self._ports.release()
            self._lock.release()
            raise

    def stop(self) -> None:
        """Stop everything in order. Harmless when nothing runs."""
        if self._supervisor is None or self._phase == "stopping":
            return
        self._phase = "stopping"
        self._write()
        self._supervisor.stop()
        remove_state(self.options.data_dir)
        self._ports.release()
        self._lock.release()

    def _recover(self) -> None:
        state = read_state(self.options.data_dir)
        if state is not None:
            self.ended_orphans = end_orphans(state)
            remove_state(self.options.data_dir)

    def _units(self, plan: StackPlan) -> list[Unit]:
        data_dir, logs = self.options.data_dir, self.options.data_dir / "logs"
        units: list[Unit] = [ServiceUnit(spec, logs / f"{spec.name}.log") for spec in plan.services]
        if plan.clickhouse_port is not None:
            log_path = logs / "clickhouse.log"
            units.append(ClickHouseUnit(data_dir / "clickhouse", log_path, plan.clickhouse_port))
        if plan.kafka_port is not None:
            log_path = logs / "broker.log"
            launcher = ApacheKafka if self.options.broker == "apache" else EmbeddedBroker
            broker = launcher(data_dir / f"broker-{self.options.broker}", log_path, port=plan.kafka_port)
            units.append(BrokerUnit(broker, log_path))
        return units

    def _write(self) -> None:
        with self._writing:
            write_state(self.options.data_dir, self.state())

    def state(self) -> StackState:
        """What the state file says."""
        plan, supervisor = self._started()
        return StackState(
            supervisor_pid=os.getpid(),
            phase=self._phase,
            options=self.options,
            kafka=plan.kafka.bootstrap,
            clickhouse=plan.clickhouse.url,
            gateways=plan.gateway_urls,
            processes=[_process_state(supervised) for supervised in supervisor.supervised],
        )

    def _started(self) -> tuple[StackPlan, Supervisor]:
        if self._plan is None or self._supervisor is None:
            raise RuntimeError("the stack was not started")
        return self._plan, self._supervisor

    @property
    def gateway_urls(self) -> list[str]:
        """One per gateway."""
        return self._started()[0].gateway_urls

    @property
    def gateway_url(self) -> str:
        """The first gateway."""
        return self.gateway_urls[0]

    @property
    def kafka(self) -> KafkaSettings:
        """How to reach the broker."""
        return self._started()[0].kafka

    @property
    def clickhouse(self) -> ClickHouseSettings:
        """How to reach ClickHouse."""
        return self._started()[0].clickhouse

    @property
    def process_names(self) -> list[str]:
        """`gateway` or `gateway-0`, …, `processors`, perhaps `evaluators`, `sink`, `clickhouse`, `broker`."""
        return [supervised.unit.name for supervised in self._started()[1].supervised]

    def environment_of(self, name: str) -> dict[str, str]:
        """What a service was started with, e.g. to start another one like it. Raises `KeyError`."""
        by_name = {spec.name: spec for spec in self._started()[0].services}
        return os.environ | dict(by_name[name].environment)

    def process(self, name: str) -> StackProcess:
        """One process by name. Raises `KeyError`."""
        by_name = {supervised.unit.name: supervised for supervised in self._started()[1].supervised}
        return StackProcess(by_name[name])

    def problems(self) -> dict[str, str]:
        """Why which processes are not able to work; empty when all is well."""
        return self._started()[1].problems()

    def wait_healthy(self, *, timeout_s: float = 60.0) -> None:
        """Return when all is well again, e.g. after a kill. Raises `Unavailable` with the problems."""
        deadline = time.monotonic() + timeout_s
        while problems := self.problems():
            if time.monotonic() > deadline:
                raise Unavailable(f"not healthy within {timeout_s:g} s: {problems}")
            time.sleep(0.1)

    def __enter__(self) -> LocalStack:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _process_state(supervised: Supervised) -> ProcessState:
    unit, pid = supervised.unit, supervised.unit.pid
    state = "given up" if supervised.gave_up else "running" if pid else "down"
    return ProcessState(
        name=unit.name,
        pid=pid,
        started_at=started_at(pid) if pid else None,
        url=unit.url,
        log=Path(unit.log_path),
        state=state,
        restarts=supervised.restarts,
    )


def _check_external(options: StackOptions, plan: StackPlan) -> None:
    if options.kafka:
        addresses = [urlsplit(f"//{address.strip()}") for address in options.kafka.split(",")]
        if not any(answers(a.hostname or "", a.port or 9092, timeout_s=5.0) for a in addresses):
            raise Unavailable(
                f"no Kafka broker answers at {options.kafka}: check --kafka HOST:PORT and that it runs"
            )
    if options.clickhouse:
        connect(plan.clickhouse, database="default").close()
