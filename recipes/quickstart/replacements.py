"""Runs again what was lost: answers the `RolloutWanted` events of a run while its rollouts go on."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentworld.contract.topics import GROUPS
from agentworld.platform.reader import KafkaReader
from agentworld.platform.settings import KafkaSettings
from agentworld.platform.wanted_rollouts import wanted_rollouts
from recipes.quickstart.problems import make_problems
from recipes.quickstart.rollouts import Plan, RolloutResult, Runner


@contextmanager
def replaced(plan: Plan, kafka: KafkaSettings, on_result: Callable[[RolloutResult], None]) -> Iterator[None]:
    """Within the block, each rollout that a group of the run asks for is run in the place of the lost one."""
    stop = threading.Event()
    reader = KafkaReader(
        kafka, [GROUPS], group=f"{kafka.topic_prefix}quickstart-{uuid.uuid4().hex}", client_id="quickstart"
    )
    problems = {problem.prompt_id: problem for problem in make_problems(plan.seed, plan.tasks)}

    def work() -> None:
        with Runner(plan) as runner:
            for wanted in wanted_rollouts(reader, plan.run_id, stop=stop):
                problem = problems.get(wanted.prompt_id)
                if problem is not None:
                    index = plan.rollouts + wanted.attempt - 1
                    on_result(runner.rollout(problem, index, replaces=wanted.replaces_trajectory_id))

    thread = threading.Thread(target=work, name="replacements", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        reader.close()
