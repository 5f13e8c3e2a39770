"""Partitions of which nothing was committed yet are read from their beginning, whenever a worker comes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agentworld.contract.events import Event, TrajectorySealed
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.settings import KafkaSettings
from tests.unit.stream_processors.rollouts import Rollout
from tests.unit.stream_processors.running import KafkaPlane, now_ms

pytestmark = pytest.mark.timeout(200)

GROUPS = 24


def _rollouts(plane: KafkaPlane) -> set[str]:
    events: list[Event] = []
    names = [f"g{number}" for number in range(GROUPS)]
    for name in names:
        events += Rollout(name, name, rollouts=1, start_ms=now_ms()).whole(2)
    plane.publish(*events)
    return set(names)


def _sealed(plane: KafkaPlane) -> set[str]:
    events = plane.until(TRAJECTORIES, TrajectorySealed, GROUPS)
    return {event.trajectory_id for event in events if isinstance(event, TrajectorySealed)}


@pytest.mark.parametrize("rounds", range(2))
def test_a_worker_killed_before_its_first_commit_loses_nothing(
    kafka: KafkaSettings, tmp_path: Path, rounds: int
) -> None:
    with KafkaPlane(kafka, tmp_path, grace_ms=3_000) as plane:
        first = plane.start_worker()
        names = _rollouts(plane)
        time.sleep(0.2 * rounds)
        first.kill()
        plane.start_worker()
        assert _sealed(plane) == names


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 0.6])
def test_a_worker_killed_with_a_commit_in_some_partitions_loses_nothing(
    kafka: KafkaSettings, tmp_path: Path, delay_s: float
) -> None:
    with KafkaPlane(kafka, tmp_path, grace_ms=500) as plane:
        first = plane.start_worker()
        plane.publish(*Rollout("early", "early", rollouts=1, start_ms=now_ms()).whole(2))
        plane.until(TRAJECTORIES, TrajectorySealed, 1)
        time.sleep(2)
        names = _rollouts(plane)
        time.sleep(delay_s)
        first.kill()
        plane.start_worker()
        sealed = plane.until(TRAJECTORIES, TrajectorySealed, GROUPS + 1)
        assert {e.trajectory_id for e in sealed if isinstance(e, TrajectorySealed)} == names | {"early"}


def test_what_was_there_before_any_worker_is_read(kafka: KafkaSettings, tmp_path: Path) -> None:
    with KafkaPlane(kafka, tmp_path, grace_ms=300) as plane:
        names = _rollouts(plane)
        plane.start_worker()
        assert _sealed(plane) == names
