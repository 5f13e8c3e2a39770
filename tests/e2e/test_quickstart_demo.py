"""`agentworld demo` in small: the numbers add up, and go on doing so on a used data directory."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TASKS, ROLLOUTS = 4, 3


def run_demo(root, *options):
    report = root / "reports" / "demo.json"
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from agentworld.cli import main; main()", "demo"),
            *("--tasks", str(TASKS), "--rollouts", str(ROLLOUTS), "--concurrency", "4"),
            *("--data-dir", str(root / "data"), "--report", str(report), *options),
        ],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"},
        timeout=240,
    )
    return done, json.loads(report.read_text()) if report.exists() else None


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.mark.parametrize("time", ["first", "again"])
def test_the_demo_adds_up(root, time):
    done, report = run_demo(root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["problems"] == []
    assert report["answered_calls"] == report["captured_steps"] == report["stored_steps"] > TASKS * ROLLOUTS
    assert report["groups_total"] == report["groups_ready"] == report["groups_resolved"] == TASKS
    assert report["ids_exact"] is True
    assert report["logprobs_aligned"] is True
    assert len(report["run"]["results"]) == TASKS * ROLLOUTS
    for shown in ("Groups", "Batch ", "Which tasks are hardest?", "Does it add up?", "http://127.0.0.1:"):
        assert shown in done.stdout


@pytest.mark.parametrize("options", [("--tasks", "0"), ("--rollouts", "x"), ("--no-such",)])
def test_bad_options_are_refused_before_anything_starts(tmp_path, options):
    done, report = run_demo(tmp_path, *options)
    assert done.returncode == 2
    assert report is None
    assert not (tmp_path / "data").exists()
