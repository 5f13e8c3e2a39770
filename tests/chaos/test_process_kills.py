"""kill -9 of each process once under the quickstart's load: nothing answered is lost or doubled."""

from __future__ import annotations

import threading

import pytest

from agentworld.contract.codec import decode
from agentworld.contract.events import BatchReady
from agentworld.contract.topics import READY_BATCHES
from agentworld.platform.scan import scan_topic
from recipes.quickstart.rollouts import Plan, run
from tests.support.quickstart import settled_verdict, stack_with_engine

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(420)]

TASKS, ROLLOUTS = 4, 4
VICTIMS = ("gateway", "processors", "sink", "clickhouse", "broker")


class Killer(threading.Thread):
    """Kills each process once, each when the load moves on and all is healthy again."""

    def __init__(self, stack) -> None:
        super().__init__(daemon=True)
        self.stack, self.killed, self.error = stack, [], None
        self.moved = threading.Semaphore(0)

    def run(self) -> None:
        try:
            for victim in VICTIMS:
                for _ in range(3):
                    self.moved.acquire(timeout=60)
                self.stack.process(victim).kill()
                self.killed.append(victim)
                self.stack.wait_healthy(timeout_s=90)
        except Exception as exc:
            self.error = exc


@pytest.mark.parametrize("broker", ["embedded", "apache"])
def test_nothing_answered_is_lost_or_doubled_when_each_process_is_killed(tmp_path, broker):
    with stack_with_engine(tmp_path, broker=broker) as (stack, engine):
        killer = Killer(stack)
        killer.start()
        runs = []
        while killer.is_alive() and len(runs) < 12:
            plan = Plan(
                gateway_url=stack.gateway_url,
                run_id=f"kills-{len(runs)}",
                seed=len(runs),
                tasks=TASKS,
                rollouts=ROLLOUTS,
                max_tries=30,
            )
            runs.append(run(plan, on_result=lambda _: killer.moved.release()))
        killer.join(120)
        assert killer.error is None
        assert tuple(killer.killed) == VICTIMS
        for summary in runs:
            verdict = settled_verdict(
                stack,
                engine,
                run_id=summary.run_id,
                answered_ids=summary.answered_ids,
                groups=TASKS,
                clients_lost_answers=True,
            )
            assert verdict.problems == [], (summary.run_id, verdict.figures)
        assert sum(len(summary.answered_ids) for summary in runs) > TASKS * ROLLOUTS
        assert_no_group_is_batched_twice(stack)


def assert_no_group_is_batched_twice(stack) -> None:
    batches: dict[str, BatchReady] = {}
    for record in scan_topic(stack.kafka, READY_BATCHES):
        event = decode(READY_BATCHES, record.value)
        if isinstance(event, BatchReady):
            assert batches.setdefault(event.batch_id, event) == event
    groups = [group.group_id for batch in batches.values() for group in batch.groups]
    assert len(groups) == len(set(groups)) > 0
