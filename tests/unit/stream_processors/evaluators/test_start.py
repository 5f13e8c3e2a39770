"""What keeps the evaluators from starting is said in one line that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

JUDGE = """
[[default.evaluator]]
kind = "judge"
url = "http://127.0.0.1:1/v1"
model = "m"
rubric = "{{answer}}"
api_key_env = "A_KEY_THAT_IS_NOT_SET"
"""


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (None, "set AGENTWORLD_EVALUATORS_RULES_FILE"),
        ("[default.batch]\ngroups = 2\n", "has no [[default.evaluator]]"),
        (JUDGE, "evaluator judge: the environment variable A_KEY_THAT_IS_NOT_SET is not set"),
        (
            '[[default.evaluator]]\nkind = "plugin"\nfunction = "no_such_package:rate"\n',
            "evaluator function no_such_package:rate cannot be imported: ModuleNotFoundError",
        ),
    ],
)
def test_a_start_that_cannot_be_says_why(tmp_path: Path, rules: str | None, says: str) -> None:
    environment = os.environ | {"AGENTWORLD_EVALUATORS_DATA_DIR": str(tmp_path / "data")}
    if rules is not None:
        (tmp_path / "rules.toml").write_text(rules)
        environment["AGENTWORLD_EVALUATORS_RULES_FILE"] = str(tmp_path / "rules.toml")
    ended = subprocess.run(
        [sys.executable, "-m", "stream_processors.evaluators"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
