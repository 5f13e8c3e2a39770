"""A rollout that is lost is asked for again, run again, and its group is complete."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agentworld.client import AgentWorld
from agentworld.contract.codec import decode
from agentworld.contract.events import GroupReady, RolloutWanted
from agentworld.contract.topics import GROUPS
from agentworld.platform.scan import scan_topic
from infra.local.stack import LocalStack
from recipes.quickstart.problems import make_problems
from recipes.quickstart.replacements import replaced
from recipes.quickstart.rollouts import Plan, RolloutResult, Runner
from tests.support.quickstart import stack_with_engine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PATIENCE_S = 150.0
RULES = """
[[run]]
match = "refilled"
[run.seal]
idle_timeout_ms = 4000
[run.group]
deadline_ms = 600000
refill_outcomes = ["abandoned"]
max_refills = 2
"""


def decisions(stack: LocalStack, kind: type) -> list:
    events = (decode(GROUPS, record.value) for record in scan_topic(stack.kafka, GROUPS))
    return [event for event in events if isinstance(event, kind)]


def test_a_lost_rollout_is_run_again_in_its_place(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    with stack_with_engine(tmp_path, AGENTWORLD_PROCESSORS_RULES_FILE=str(rules)) as (stack, _):
        plan = Plan(gateway_url=stack.gateway_url, run_id="refilled", tasks=1, rollouts=2, crash_rate=0.0)
        [problem] = make_problems(plan.seed, 1)
        results: list[RolloutResult] = []
        with replaced(plan, stack.kafka, results.append), Runner(plan) as runner:
            lost = AgentWorld(stack.gateway_url).trajectory(
                prompt_id=problem.prompt_id, run_id=plan.run_id, rollouts=2, rollout_index=0
            )
            lost.__enter__()  # and its runner dies
            whole = runner.rollout(problem, 1)
            deadline = time.monotonic() + PATIENCE_S
            while not (ready := decisions(stack, GroupReady)) and time.monotonic() < deadline:
                time.sleep(0.5)
        [wanted] = decisions(stack, RolloutWanted)
        assert wanted.replaces_trajectory_id == lost.trajectory_id
        [group] = ready
        [replacement] = results
        members = {member.trajectory_id: member.outcome for member in group.members}
        assert set(members) == {whole.trajectory_id, replacement.trajectory_id}
        assert set(members.values()) <= {"succeeded", "failed"}
        assert group.details["replaced"] == [lost.trajectory_id]
