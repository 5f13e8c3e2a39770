"""`agentworld replay` on what the demo collects: dry and real, twice each, the same batches."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batches import BatchReader
from agentworld.platform.clickhouse import connect
from agentworld.platform.reader import KafkaPlaceReader
from agentworld.platform.resolved import ResolvedBatch
from agentworld.platform.scan import scan_topic
from infra.local.stack import LocalStack
from recipes.quickstart.rollouts import Plan, run
from tests.support.quickstart import settled_verdict, stack_with_engine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TASKS, ROLLOUTS = 4, 3


def replay(root: Path, into: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from agentworld.cli import main; main()", "replay"),
            *("--data-dir", str(root / "data"), "--run", "collected", "--into", into),
            *("--batch-groups", "2", *options),
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=root,
        env={k: v for k, v in os.environ.items() if not k.startswith("AGENTWORLD_")} | {"NO_COLOR": "1"},
        timeout=120,
    )
    report = root / "reports" / "replay.json"
    return done, json.loads(report.read_text()) if report.exists() else {}


def resolved(stack: LocalStack, run_id: str) -> list[ResolvedBatch]:
    places = KafkaPlaceReader(stack.kafka, TRAJECTORIES, client_id="test")
    try:
        reader = BatchReader(places, partial(scan_topic, stack.kafka, READY_BATCHES))
        return [reader.resolve(batch) for batch in reader.list(run_id=run_id)]
    finally:
        places.close()


def sampled(batches: list[ResolvedBatch]) -> dict[str, list[int]]:
    """Every step's ids by step id."""
    return {
        step.step_id: step.response_ids
        for batch in batches
        for trajectory in batch.trajectories
        for step in trajectory.steps
    }


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    root = tmp_path_factory.mktemp("replay")
    with stack_with_engine(root) as (stack, engine):
        summary = run(
            Plan(gateway_url=stack.gateway_url, run_id="collected", tasks=TASKS, rollouts=ROLLOUTS),
            on_result=lambda _: None,
        )
        verdict = settled_verdict(
            stack, engine, run_id="collected", answered_ids=summary.answered_ids, groups=TASKS
        )
        assert verdict.problems == []
        yield root, stack


@pytest.mark.parametrize("source", [(), ("--assemble",)], ids=["regrouped", "assembled"])
def test_dry_runs_and_real_ones_give_the_same_batches_twice(collected, source):
    root, stack = collected
    into = f"again-{len(source)}"
    reports = []
    for options in (("--dry-run",), ("--dry-run",), (), ()):
        done, report = replay(root, into, *source, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        reports.append(report)
    first_dry, second_dry, first, second = reports
    assert first_dry["batches"] == first["batches"]
    assert len(first["batches"]) == TASKS // 2
    assert first_dry["digest"] == second_dry["digest"]
    assert first["digest"] == second["digest"]
    if not source:
        assert first["digest"] == first_dry["digest"]
    assert (first_dry["written"], second["written"]) == (0, 0)
    assert first["written"] > 0
    original = resolved(stack, "collected")
    replayed = resolved(stack, into)
    assert [batch.event.batch_id for batch in replayed] == first["batches"]
    assert {batch.event.replay_of for batch in replayed} == {"collected"}
    assert sampled(replayed) == sampled(original)
    assert len(sampled(replayed)) > TASKS * ROLLOUTS
    assert all(step.prompt_ids for batch in replayed for t in batch.trajectories for step in t.steps)


def test_other_rules_and_a_query_choose_what_is_batched(collected):
    root, stack = collected
    (root / "strict.toml").write_text('[[default.curation]]\nrule = "length"\nmin_steps = 99\n')
    done, report = replay(root, "strict", "--dry-run", "--rules", str(root / "strict.toml"))
    assert done.returncode == 0, done.stderr
    assert report["batches"] == []
    assert report["decisions"] == {"group_rejected": TASKS}
    with contextlib.closing(connect(stack.clickhouse)) as clickhouse:
        one = clickhouse.query("SELECT min(group_id) FROM groups FINAL WHERE run_id = 'collected'")
    group_id = one.result_rows[0][0]
    sql = f"SELECT group_id FROM groups FINAL WHERE group_id = '{group_id}'"
    done, report = replay(root, "one", "--dry-run", "--flush", "--sql", sql)
    assert done.returncode == 0, done.stderr
    assert (report["groups"], report["trajectories"], len(report["batches"])) == (1, ROLLOUTS, 1)


def test_replayed_decisions_are_rows_too(collected):
    root, stack = collected
    done, _ = replay(root, "rows")
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 90
    query = "SELECT count() FROM {} FINAL WHERE run_id = 'rows'"
    with contextlib.closing(connect(stack.clickhouse)) as clickhouse:
        while True:
            counts = [clickhouse.query(query.format(t)).result_rows[0][0] for t in ("groups", "batches")]
            if counts == [TASKS, TASKS // 2] or time.monotonic() > deadline:
                break
            time.sleep(0.5)
    assert counts == [TASKS, TASKS // 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--sql", "SELECT 1 AS x"), "one of trajectory_id, group_id"),
        (("--sql", "DROP TABLE steps"), "query fails"),
        (("--offsets", "x"), "PARTITION:FIRST-END"),
        (("--since", "yesterday"), "neither a duration"),
        (("--rules", "nowhere.toml"), "cannot be read"),
        (("--channel", "none"), "no trajectory of run"),
        (("--reward", ","), "names no reward"),
    ],
)
def test_what_cannot_be_replayed_is_said_plainly(collected, options, says):
    root, _ = collected
    done, _ = replay(root, "never", "--dry-run", *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
