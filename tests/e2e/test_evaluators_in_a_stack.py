"""`agentworld up` with evaluators in its rules: a killed process comes back, groups get their rewards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentworld.contract.codec import decode
from agentworld.contract.events import GroupReady
from agentworld.contract.topics import GROUPS, TRAJECTORY_EVENTS
from agentworld.platform.clickhouse import connect
from agentworld.platform.dead_letter_reader import LETTERED_TOPICS, KafkaLetterLog
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.scan import scan_topic
from infra.local.ports import free_port
from infra.local.stack import LocalStack, StackOptions
from tests.unit.stream_processors.rollouts import Rollout
from tests.unit.stream_processors.running import now_ms, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]

RULES = """
[default.seal]
grace_ms = 300
[default.reward]
names = ["turns"]
required = true
[default.batch]
groups = 1

[[default.evaluator]]
kind = "plugin"
name = "turns"
function = "tests.support.plugins:steps"
"""


async def publish(stack: LocalStack, rollouts: list[Rollout]) -> None:
    publisher = KafkaPublisher(stack.kafka, client_id="test")
    for turns, rollout in enumerate(rollouts, 1):
        for event in rollout.whole(turns, reward=None):
            await publisher.publish(OutRecord.of(TRAJECTORY_EVENTS, event))
    await publisher.close()


def ready_groups(stack: LocalStack) -> list[GroupReady]:
    events = [decode(GROUPS, record.value) for record in scan_topic(stack.kafka, GROUPS)]
    return [event for event in events if isinstance(event, GroupReady)]


def test_a_stack_runs_the_evaluators_of_its_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    options = StackOptions(
        data_dir=tmp_path / "data",
        rules=rules,
        kafka_port=free_port(),
        gateway_port=free_port(),
        environment={"PYTHONPATH": str(ROOT)},
    )
    with LocalStack(options) as stack:
        assert "evaluators" in stack.process_names
        for kills, prompt in enumerate(("before", "after")):
            rollouts = [Rollout(f"{prompt}-{index}", prompt, start_ms=now_ms() + index) for index in range(2)]
            asyncio.run(publish(stack, rollouts))
            if kills:
                stack.process("evaluators").kill()
            wait_for(lambda: len(ready_groups(stack)) == kills + 1, f"group {prompt}")  # noqa: B023
        stack.wait_healthy()
        for group in ready_groups(stack):
            assert sorted(member.reward or 0.0 for member in group.members) == [1.0, 2.0]
        clickhouse = connect(stack.clickhouse)
        stored = "SELECT count(), sum(value) FROM rewards FINAL WHERE name = 'turns'"
        wait_for(lambda: clickhouse.query(stored).result_rows == [(4, 6.0)], "the rewards' rows")
        clickhouse.close()
        letters = KafkaLetterLog(stack.kafka)
        assert [list(letters.scan(spec)) for spec in LETTERED_TOPICS] == [[] for _ in LETTERED_TOPICS]
