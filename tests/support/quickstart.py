"""Runs the quickstart recipe against a local stack and collects the evidence of every side."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from agentworld.platform.clickhouse import connect
from infra.local.ports import free_port
from infra.local.stack import LocalStack, StackOptions
from recipes.quickstart import evidence
from recipes.quickstart.engine.process import EngineProcess, engine_process
from recipes.quickstart.verification import Evidence, Verdict, verify

PATIENCE_S = 150.0
SHORT_WAITS = {
    "AGENTWORLD_PROCESSORS_GRACE_MS": "1000",
    "AGENTWORLD_PROCESSORS_IDLE_TIMEOUT_MS": "20000",
    "AGENTWORLD_PROCESSORS_GROUP_DEADLINE_MS": "40000",
    "AGENTWORLD_PROCESSORS_BATCH_GROUPS": "4",
}
"""A rollout that a kill cut short for good is given up soon, and so is its group."""


@contextlib.contextmanager
def stack_with_engine(root: Path, **options: object) -> Iterator[tuple[LocalStack, EngineProcess]]:
    """A stack in front of the demo engine. Options in capitals are environment variables of its services."""
    environment = {name: str(value) for name, value in options.items() if name.isupper()}
    root.mkdir(parents=True, exist_ok=True)
    with (
        engine_process(root / "journal.jsonl", log_path=root / "engine.log") as engine,
        LocalStack(
            StackOptions(
                data_dir=root / "data",
                upstream_url=engine.url,
                # Never the default ports: what a broken-off run left behind must not find this one.
                kafka_port=free_port(),
                gateway_port=free_port(),
                environment=SHORT_WAITS | environment,
                **{name: value for name, value in options.items() if name.islower()},  # type: ignore[arg-type]
            )
        ) as stack,
    ):
        yield stack, engine


def settled_verdict(
    stack: LocalStack,
    engine: EngineProcess,
    *,
    run_id: str,
    answered_ids: list[str],
    groups: int,
    clients_lost_answers: bool = False,
) -> Verdict:
    """The verdict once it is good, or the last one before patience ran out."""
    deadline = time.monotonic() + PATIENCE_S
    with contextlib.closing(connect(stack.clickhouse)) as clickhouse:
        while True:
            decisions = evidence.decisions_in_log(stack.kafka, run_id)
            verdict = verify(
                Evidence(
                    answered_ids=answered_ids,
                    captured=evidence.steps_in_log(stack.kafka, run_id),
                    stored=evidence.steps_in_clickhouse(clickhouse, run_id),
                    decisions={
                        group: (str(event.__struct_config__.tag), event.reason)
                        for group, event in decisions.items()
                    },
                    groups_total=groups,
                    journal=evidence.journal_of(engine.journal),
                ),
                clients_lost_answers=clients_lost_answers,
            )
            if not verdict.problems or time.monotonic() > deadline:
                return verdict
            time.sleep(1.0)
