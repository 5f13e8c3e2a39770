"""Workers that die, share, restart or meet an error: nothing is lost, nothing is decided twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentworld.contract.events import BatchReady, Event, GroupReady, StepCaptured, TrajectorySealed
from agentworld.contract.topics import GROUPS, READY_BATCHES, TRAJECTORIES
from agentworld.platform.settings import KafkaSettings
from tests.unit.stream_processors.rollouts import Rollout
from tests.unit.stream_processors.running import KafkaPlane, WorkerProcess, now_ms, wait_for

pytestmark = pytest.mark.chaos

N, TURNS, BATCH = 3, 3, 4
LIMITS = {"grace_ms": 300, "batch_groups": BATCH, "session_timeout_ms": 6_000}

FAILS_ONCE_IN = """
import runpy
from stream_processors.groups.processor import GroupProcessor
process, left = GroupProcessor.process, [7]
def failing(self, record):
    left[0] -= 1
    if left[0] == 0:
        raise RuntimeError("injected")
    return process(self, record)
GroupProcessor.process = failing
runpy.run_module("stream_processors", run_name="__main__")
"""


@pytest.fixture
def plane(kafka: KafkaSettings, tmp_path: Path) -> Iterator[KafkaPlane]:
    with KafkaPlane(kafka, tmp_path, **LIMITS) as running:
        yield running


def _group(name: str) -> list[Rollout]:
    return [Rollout(f"{name}-{index}", name, rollouts=N, start_ms=now_ms() + index) for index in range(N)]


def _publish(plane: KafkaPlane, groups: int, first: int = 0) -> None:
    events: list[Event] = []
    for number in range(first, first + groups):
        for rollout in _group(f"g{number}"):
            events += rollout.whole(TURNS)
    plane.publish(*events)


def _check(plane: KafkaPlane, groups: int) -> None:
    """Every rollout sealed whole, every group ready once by id, all in batches of one group each."""
    names = {f"g{number}" for number in range(groups)}
    wait_for(lambda: _batched(plane) >= groups // BATCH * BATCH, f"{groups} groups in batches")
    plane.settle()
    sealed = {e.event_id: e for e in plane.events(TRAJECTORIES) if isinstance(e, TrajectorySealed)}
    assert {e.trajectory_id for e in sealed.values()} == {f"{g}-{i}" for g in names for i in range(N)}
    for event in sealed.values():
        assert [type(entry.step) for entry in event.steps] == [StepCaptured] * TURNS
        assert event.reward == 1.0
        assert event.integrity.clean
    ready = {e.event_id: e for e in plane.events(GROUPS) if isinstance(e, GroupReady)}
    assert Counter(e.prompt_id for e in ready.values()) == dict.fromkeys(names, 1)
    batches = {e.batch_id: e for e in plane.events(READY_BATCHES) if isinstance(e, BatchReady)}
    assert sorted(b.sequence for b in batches.values()) == list(range(len(batches)))
    placed = Counter(group.prompt_id for batch in batches.values() for group in batch.groups)
    assert set(placed.values()) == {1}


def _batched(plane: KafkaPlane) -> int:
    batches = {e.batch_id: e for e in plane.events(READY_BATCHES) if isinstance(e, BatchReady)}
    return sum(len(batch.groups) for batch in batches.values())


def test_a_worker_killed_again_and_again_loses_nothing_and_decides_nothing_twice(plane: KafkaPlane) -> None:
    groups = 24
    worker = plane.start_worker()
    for round_ in range(3):
        _publish(plane, groups // 3, first=round_ * groups // 3)
        time.sleep(0.25 * (round_ + 1))
        worker.kill()
        worker = plane.start_worker()
    _check(plane, groups)
    assert worker.stop() == 0


def test_a_worker_killed_while_records_keep_coming_skips_none(plane: KafkaPlane) -> None:
    published, stop = [0], threading.Event()

    def keep_publishing() -> None:
        while not stop.is_set():
            _publish(plane, 1, first=published[0])
            published[0] += 1
            time.sleep(0.03)

    publishing = threading.Thread(target=keep_publishing)
    worker = plane.start_worker()
    publishing.start()
    try:
        for _ in range(3):
            time.sleep(2.0)
            worker.kill()
            worker = plane.start_worker()
    finally:
        stop.set()
        publishing.join()
    _check(plane, published[0])


def test_an_unexpected_error_ends_the_worker_and_a_restart_resumes_without_loss(plane: KafkaPlane) -> None:
    groups = 8
    failing = WorkerProcess(
        plane.kafka, plane.directory, instance="0", command=("-c", FAILS_ONCE_IN), **plane.settings
    )
    plane.workers.append(failing)
    failing.wait_ready()
    _publish(plane, groups)
    assert failing.process.wait(60) == 1
    assert "injected" in failing.log_path.read_text()
    plane.start_worker()
    _check(plane, groups)


def test_two_workers_share_the_partitions_and_agree(plane: KafkaPlane) -> None:
    groups = 24
    first = plane.start_worker("0")
    _publish(plane, groups // 2)
    second = plane.start_worker("1", wait=False)
    second.wait_ready(2)
    first.wait_ready(2)
    _publish(plane, groups // 2, first=groups // 2)
    _check(plane, groups)
    assert first.stop() == 0
    assert second.stop() == 0


def test_a_killed_workers_partitions_come_back_under_its_name(plane: KafkaPlane) -> None:
    groups = 16
    plane.start_worker("0")
    second = plane.start_worker("1", wait=False)
    second.wait_ready(2)
    _publish(plane, groups)
    second.kill()
    plane.start_worker("1")
    _check(plane, groups)


@pytest.mark.apache
def test_a_worker_that_never_comes_back_is_replaced_by_the_other(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    groups = 16
    with KafkaPlane(apache_kafka, tmp_path, **LIMITS) as plane:
        first = plane.start_worker("0")
        second = plane.start_worker("1", wait=False)
        second.wait_ready(2)
        first.wait_ready(2)
        _publish(plane, groups)
        second.kill()
        first.wait_ready(4)
        _check(plane, groups)


def test_a_worker_waits_for_a_broker_that_is_away(tmp_path: Path) -> None:
    kafka = KafkaSettings(bootstrap="127.0.0.1:1", topic_prefix="away.", partitions=4)
    worker = WorkerProcess(kafka, tmp_path)
    try:
        wait_for(lambda: worker.health()["status"] == "waiting", "a worker that waits")
        assert "127.0.0.1:1" in worker.health()["reason"]
        assert worker.stop() == 0
    finally:
        worker.process.kill()
        worker.process.wait()


def test_a_taken_health_port_is_an_error_that_says_so(tmp_path: Path) -> None:
    kafka = KafkaSettings(bootstrap="127.0.0.1:1", topic_prefix="taken.", partitions=4)
    first = WorkerProcess(kafka, tmp_path)
    try:
        wait_for(lambda: first.health()["status"] == "waiting", "a worker that waits")
        second = WorkerProcess(kafka, tmp_path, instance="1", health_port=first.port)
        assert second.process.wait(90) == 1
        log = second.log_path.read_text()
        assert "cannot run" in log
        assert "Traceback" not in log
    finally:
        first.kill()
