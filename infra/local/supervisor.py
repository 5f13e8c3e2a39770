"""Keeps units alive: starts, watches, restarts with growing pauses, stops in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from agentworld.contract.errors import AgentWorldError
from infra.local.child import LaunchError, log_tail
from infra.local.log_files import bound
from infra.local.units import BrokerUnit, ServiceUnit, Unit

logger = logging.getLogger(__name__)

_WATCH_S = 0.1
_BOUND_LOGS_S = 5.0
_PAUSE_S = 0.1
_MAX_PAUSE_S = 10.0
_MAX_DEATHS = 8
_DEATHS_WITHIN_S = 120.0


@dataclass
class Supervised:
    """A unit and what happened to it."""

    unit: Unit
    restarts: int = 0
    deaths: list[float] = field(default_factory=list)
    retry_at: float = 0.0
    gave_up: bool = False
    expected: bool = False
    """It should run now."""

    def died(self, now: float) -> bool:
        """Note a death: when to try again. Whether another try makes sense."""
        self.deaths = [at for at in self.deaths if now - at < _DEATHS_WITHIN_S] + [now]
        self.gave_up = len(self.deaths) > _MAX_DEATHS
        self.retry_at = now + min(_MAX_PAUSE_S, _PAUSE_S * 2 ** (len(self.deaths) - 1))
        return not self.gave_up

    def problem(self) -> str | None:
        """None when it is able to work."""
        if self.gave_up:
            return f"given up after {len(self.deaths)} deaths; see {self.unit.log_path}"
        return self.unit.problem()


class Supervisor:
    """Units in stop order: gateways, then those that read the log, then ClickHouse, then the broker.

    `prepare_log` creates the topics each time the broker has started: before any client asks for one
    that is not there, because the embedded broker would create it with a single partition.
    """

    def __init__(
        self, units: Sequence[Unit], *, on_change: Callable[[], None], prepare_log: Callable[[], None]
    ) -> None:
        self._prepare_log = prepare_log
        self.supervised = [Supervised(unit) for unit in units]
        self._on_change = on_change
        self._changes = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self, *, timeout_s: float) -> None:
        """Return when every unit is healthy. Raises `LaunchError`; then all is stopped again."""
        try:
            stores = [s for s in self.supervised if not isinstance(s.unit, ServiceUnit)]
            with ThreadPoolExecutor(max(1, len(stores))) as pool:
                # Services wait for stores themselves, so only a broker that starts slowly holds them up.
                starting = {s.unit.name: pool.submit(self._start, s) for s in stores}
                if "broker" in starting:
                    starting["broker"].result()
                else:
                    self._prepare_log()
                for supervised in self.supervised:
                    if isinstance(supervised.unit, ServiceUnit):
                        self._start(supervised)
                for store in starting.values():
                    store.result()
            self._await_health(timeout_s)
        except BaseException:
            self.stop()
            raise
        self._watcher.start()

    def _start(self, supervised: Supervised) -> None:
        bound(supervised.unit.log_path)
        supervised.unit.start()
        if isinstance(supervised.unit, BrokerUnit):
            self._prepare_log()
        supervised.expected = True
        self._on_change()

    def _await_health(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        waiting = list(self.supervised)
        while waiting:
            for supervised in list(waiting):
                unit = supervised.unit
                problem = unit.problem()
                if problem is None:
                    waiting.remove(supervised)
                elif unit.pid is None or time.monotonic() > deadline:
                    raise LaunchError(
                        f"{unit.name} did not start ({problem}); see {unit.log_path}, which ends:\n"
                        f"{log_tail(unit.log_path)}"
                    )
                if self._stopping.is_set():
                    raise LaunchError("stopped while starting")
            time.sleep(_WATCH_S)

    def _watch(self) -> None:
        bound_at = time.monotonic()
        while not self._stopping.wait(_WATCH_S):
            with self._changes:
                for supervised in reversed(self.supervised):
                    if not self._stopping.is_set():
                        self._look_after(supervised)
            if time.monotonic() - bound_at > _BOUND_LOGS_S:
                bound_at = time.monotonic()
                for supervised in self.supervised:
                    bound(supervised.unit.log_path)

    def _look_after(self, supervised: Supervised) -> None:
        unit = supervised.unit
        if supervised.gave_up or unit.pid is not None:
            return
        now = time.monotonic()
        if supervised.expected:
            supervised.expected = False
            logger.warning("%s died: %s", unit.name, unit.problem())
            if not supervised.died(now):
                logger.error("%s is given up; see %s", unit.name, unit.log_path)
            if isinstance(unit, BrokerUnit) and unit.loses_its_tail:
                self._forget_positions()
            self._on_change()
        if supervised.gave_up or now < supervised.retry_at or not self._may_start(unit):
            return
        try:
            supervised.restarts += 1
            self._start(supervised)
            logger.warning("%s started again as process %s", unit.name, unit.pid)
        except AgentWorldError as exc:
            logger.warning("%s could not be started: %s", unit.name, exc)
            supervised.died(time.monotonic())
            self._on_change()

    def _may_start(self, unit: Unit) -> bool:
        if not isinstance(unit, ServiceUnit) or not unit.spec.reads_log:
            return True
        return all(s.expected for s in self.supervised if isinstance(s.unit, BrokerUnit))

    def _forget_positions(self) -> None:
        """Kill those that hold positions in the log, before the broker returns at an earlier state.

        A clean stop would commit positions that the broker no longer has, or has given to others.
        """
        for supervised in self.supervised:
            unit = supervised.unit
            if isinstance(unit, ServiceUnit) and unit.spec.reads_log:
                unit.kill()
                supervised.expected = False
                supervised.retry_at = 0.0

    def problems(self) -> dict[str, str]:
        """Why which units are not able to work; empty when all is well."""
        with self._changes:
            found = {s.unit.name: s.problem() for s in self.supervised}
        return {name: problem for name, problem in found.items() if problem is not None}

    def stop(self) -> None:
        """Stop all, in order, each layer at once."""
        self._stopping.set()
        with self._changes:
            for layer in _layers([s.unit for s in self.supervised]):
                with ThreadPoolExecutor(len(layer)) as pool:
                    list(pool.map(lambda unit: unit.stop(), layer))
                self._on_change()
        if self._watcher.is_alive():
            self._watcher.join(30)


def _layers(units: Sequence[Unit]) -> list[list[Unit]]:
    def layer(unit: Unit) -> str:
        return unit.spec.module if isinstance(unit, ServiceUnit) else unit.name

    layers: list[list[Unit]] = []
    for unit in units:
        if layers and layer(layers[-1][0]) == layer(unit):
            layers[-1].append(unit)
        else:
            layers.append([unit])
    return layers
