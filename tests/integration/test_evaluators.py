"""The evaluators as a process: kills, replayed dead letters, and groups that wait for their rewards."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentworld.commands.dlq import app as dlq
from agentworld.contract.events import GroupReady, RewardAssigned, VerdictGiven
from agentworld.contract.topics import GROUPS, TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord
from agentworld.platform.settings import KafkaSettings
from tests.support.evaluated import finished
from tests.support.evaluator_process import EvaluatorProcess, judge_in_a_thread
from tests.support.judge import Gated, ScriptedJudge, says, score, status
from tests.unit.stream_processors.rollouts import Rollout
from tests.unit.stream_processors.running import KafkaPlane, now_ms, wait_for

pytestmark = pytest.mark.timeout(300)

KEY = "sk-a-key-that-no-event-may-hold"
TRAJECTORY_COUNT = 30


def write_rules(directory: Path, url: str, more: str = "") -> Path:
    path = directory / "rules.toml"
    path.write_text(
        f"""
[default.reward]
names = ["quality"]
required = true

[default.batch]
groups = 1

[[default.evaluator]]
kind = "judge"
name = "quality"
url = "{url}"
model = "judge-7b"
rubric = "Rate this: {{{{answer}}}}"
api_key_env = "JUDGE_KEY"
concurrency = 3
tries = 2
retry_ms = 50
reject_below = 0.5
{more}
"""
    )
    return path


def rewards(plane: KafkaPlane) -> dict[str, set[str]]:
    """Event ids of rewards by trajectory."""
    found: dict[str, set[str]] = defaultdict(set)
    for event in plane.events(TRAJECTORY_EVENTS):
        if isinstance(event, RewardAssigned):
            found[event.trajectory_id].add(event.event_id)
    return found


@pytest.mark.chaos
def test_kills_lose_no_reward_and_repeat_equal_ids(kafka: KafkaSettings, tmp_path: Path) -> None:
    gate = Gated(5, says(score(0.25, "thin")))
    judge = ScriptedJudge(otherwise=gate)
    with judge_in_a_thread(judge) as url, KafkaPlane(kafka, tmp_path) as plane:
        for index in range(TRAJECTORY_COUNT):
            sealed = finished(f"t-{index}", f"answer {index}", prompt_id=f"p-{index}")
            plane.publish_bytes(OutRecord.of(TRAJECTORIES, sealed))
        rules = write_rules(tmp_path, url)
        with EvaluatorProcess(kafka, tmp_path, rules, JUDGE_KEY=KEY) as evaluators:
            for least in (5, 12):
                gate.allowed = least
                wait_for(lambda least=least: gate.answered >= least, f"{least} answers")
                evaluators.end(signal.SIGKILL)
                assert len(rewards(plane)) < TRAJECTORY_COUNT
                evaluators.start()
            gate.allowed = 10 * TRAJECTORY_COUNT
            wait_for(lambda: len(rewards(plane)) == TRAJECTORY_COUNT, "all rewards")
            wait_for(lambda: evaluators.health()["status"] == "ok", f"health: {evaluators.health()}")
            assert 'agentworld_evaluator_evaluations_total{evaluator="quality"' in evaluators.metrics()
            assert evaluators.end() == 0
        assert all(len(ids) == 1 for ids in rewards(plane).values())
        verdicts = [e for e in plane.events(TRAJECTORY_EVENTS) if isinstance(e, VerdictGiven)]
        assert {verdict.trajectory_id for verdict in verdicts} == set(rewards(plane))
        assert {verdict.decision for verdict in verdicts} == {"reject"}
        assert len({verdict.event_id for verdict in verdicts}) == TRAJECTORY_COUNT
        written = plane.records(TRAJECTORY_EVENTS.name)
        assert KEY not in repr([(record.value, record.headers) for record in written])
        assert KEY not in evaluators.log_path.read_text()
        assert set(judge.keys) == {f"Bearer {KEY}"}


def test_a_failed_evaluation_is_tried_again_by_a_replay_of_its_dead_letter(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTWORLD_KAFKA_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.setenv("AGENTWORLD_KAFKA_TOPIC_PREFIX", kafka.topic_prefix)
    judge = ScriptedJudge([status(500), status(503)])
    with judge_in_a_thread(judge) as url, KafkaPlane(kafka, tmp_path) as plane:
        plane.publish_bytes(OutRecord.of(TRAJECTORIES, finished("t")))
        rules = write_rules(tmp_path, url)
        with EvaluatorProcess(kafka, tmp_path, rules, JUDGE_KEY=KEY) as evaluators:
            [letter] = plane.letters(TRAJECTORIES, 1)
            said = {name: value.decode() for name, value in letter.headers}
            assert (said["dlq-reason"], said["evaluation-failed"]) == ("evaluation_failed", "quality")
            assert "no usable answer in 2 tries" in said["dlq-detail"]
            assert rewards(plane) == {}
            replayed = CliRunner().invoke(dlq, ["replay", "--reason", "evaluation_failed", "--yes"])
            assert replayed.exit_code == 0, replayed.output
            wait_for(lambda: rewards(plane), "the reward")
            assert set(rewards(plane)) == {"t"}
            assert evaluators.end() == 0
    assert len(judge.requests) == 3


def test_a_group_waits_for_its_judge_and_is_decided_with_its_rewards(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    judge = ScriptedJudge([says(score(0.75)), says(score(1))])
    with judge_in_a_thread(judge) as url:
        rules = write_rules(tmp_path, url)
        settings = {"rules_file": rules, "grace_ms": 300}
        with (
            KafkaPlane(kafka, tmp_path, **settings) as plane,
            EvaluatorProcess(kafka, tmp_path, rules, JUDGE_KEY=KEY),
        ):
            plane.start_worker()
            for index in range(2):
                rollout = Rollout(f"r-{index}", "p", rollouts=2, start_ms=now_ms() + index)
                plane.publish(*rollout.whole(2, reward=None))
            [ready] = plane.until(GROUPS, GroupReady, 1)
    assert isinstance(ready, GroupReady)
    assert sorted(member.reward or 0.0 for member in ready.members) == [0.75, 1.0]
