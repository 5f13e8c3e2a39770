"""`python -m recipes.quickstart --gateway URL`: the rollouts alone, against a stack that runs."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from contextlib import AbstractContextManager, nullcontext

from agentworld.platform.settings import KafkaSettings
from recipes.quickstart.replacements import replaced
from recipes.quickstart.rollouts import Plan, RolloutResult, run


def main() -> int:
    """Run, and print the summary as JSON; 1 where a rollout ended in an error."""
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart", description=__doc__)
    parser.add_argument("--gateway", default="http://127.0.0.1:8700")
    parser.add_argument("--run-id", default=f"quickstart-{int(time.time())}")
    parser.add_argument("--model", default=Plan.model)
    parser.add_argument("--tasks", type=int, default=Plan.tasks)
    parser.add_argument("--rollouts", type=int, default=Plan.rollouts)
    parser.add_argument("--concurrency", type=int, default=Plan.concurrency)
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help="run lost rollouts again, as groups ask for it there"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    plan = Plan(
        gateway_url=arguments.gateway,
        run_id=arguments.run_id,
        model=arguments.model,
        tasks=arguments.tasks,
        rollouts=arguments.rollouts,
        concurrency=arguments.concurrency,
        seed=arguments.seed,
    )
    again: list[RolloutResult] = []
    following: AbstractContextManager[None] = nullcontext()
    if arguments.kafka:
        following = replaced(plan, KafkaSettings(bootstrap=arguments.kafka), again.append)
    with following:
        summary = run(plan)
    figures = summary.figures() | {"replaced": len(again)}
    json.dump(figures, sys.stdout, indent=2)
    print()
    return 1 if summary.count("error") else 0


if __name__ == "__main__":
    sys.exit(main())
