"""`agentworld up --rules FILE`: checked at once, and handed to the processors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentworld.cli import app
from agentworld.contract.errors import InvalidInput
from infra.local.options import StackOptions
from infra.local.plan import plan_stack
from infra.local.rules_file import check_rules_file
from infra.local.stack import LocalStack
from stream_processors.rule_book import RuleBook
from stream_processors.rules import Rules

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "infra" / "rules.example.toml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[default.batch]\ngroups = 0\n", "[default]: Expected `int` >= 1"),
        ("[default.batch]\nsize = 8\n", "unknown field `size`"),
        ("[default", "not TOML"),
        (None, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--detach"]])
def test_a_wrong_file_stops_the_start_with_its_name_and_the_mistake(
    tmp_path: Path, text: str | None, says: str, more: list[str]
) -> None:
    path = tmp_path / "rules.toml"
    if text is not None:
        path.write_text(text)
    command = ["up", "--rules", str(path), "--data-dir", str(tmp_path / "data"), *more]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: the rules file {path}")
    assert says in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_stack_in_a_program_refuses_it_too(tmp_path: Path) -> None:
    options = StackOptions(data_dir=tmp_path / "data", rules=tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match=r"none\.toml cannot be read"):
        LocalStack(options).start()


def test_every_processor_gets_the_file_and_no_other_service(tmp_path: Path) -> None:
    options = StackOptions(data_dir=tmp_path, rules=EXAMPLE, processors=2)
    plan = plan_stack(options, lambda port: port)
    given = {
        spec.name: spec.environment.get("AGENTWORLD_PROCESSORS_RULES_FILE")
        for spec in plan.services
        if "AGENTWORLD_PROCESSORS_RULES_FILE" in spec.environment
    }
    assert given == dict.fromkeys(["processors-0", "processors-1"], str(EXAMPLE))


JUDGE = """
[[default.evaluator]]
kind = "judge"
url = "http://127.0.0.1:1/v1"
model = "m"
rubric = "{{answer}}"
api_key_env = "KEY_OF_THE_JUDGE"
"""


def test_evaluators_run_where_the_file_has_any(tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("[default.batch]\ngroups = 2\n")
    assert check_rules_file(EXAMPLE) is True
    assert check_rules_file(tmp_path / "none.toml") is check_rules_file(None) is False
    options = StackOptions(data_dir=tmp_path, rules=EXAMPLE)
    names = [spec.name for spec in plan_stack(options, lambda port: port).services]
    assert names == ["gateway", "processors", "sink"]
    services = plan_stack(options, lambda port: port, evaluators=True).services
    [spec] = [spec for spec in services if spec.name == "evaluators"]
    assert spec.argv[-1] == "stream_processors.evaluators"
    assert spec.environment["AGENTWORLD_EVALUATORS_RULES_FILE"] == str(EXAMPLE)
    assert spec.environment["AGENTWORLD_EVALUATORS_HEALTH_PORT"] == str(spec.port)
    assert spec.reads_log


def test_a_judge_whose_key_is_missing_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(JUDGE)
    result = CliRunner().invoke(app, ["up", "--rules", str(path), "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 1
    assert "the environment variable KEY_OF_THE_JUDGE is not set" in result.stderr
    assert check_rules_file(path, {"KEY_OF_THE_JUDGE": "sk"}) is True


def test_the_check_needs_no_faust() -> None:
    code = "import infra.local.stack, sys; sys.exit('faust' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_example_says_what_its_comments_say() -> None:
    book = RuleBook.read(EXAMPLE, Rules())
    plain, base = book.of("any", "train"), Rules()
    assert (plain.seal, plain.group, plain.reward, plain.batch) == (
        base.seal,
        base.group,
        base.reward,
        base.batch,
    )
    assert [type(rule).__name__ for rule in plain.curation] == ["TokenSourceRule", "ZeroVariance"]
    assert plain.evaluators == ()
    [exact] = book.of("gsm8k-1", "train").evaluators
    assert (exact.reward, exact.extract, book.of("gsm8k-1", "train").reward.required) == (
        "reward",
        "number",
        True,
    )
    swe = book.of("swe-1", "train").group
    assert (swe.policy, swe.min_k, swe.max_refills) == ("partial", 4, 2)
    online = book.of("online-1", "train").batch
    assert (online.order, online.max_policy_lag, online.max_unconsumed) == ("freshest", 2, 1)
    validation = book.of("online-1", "val")
    assert (validation.curation, validation.batch.groups, validation.batch.order) == ((), 1, "fifo")
    assert [type(rule).__name__ for rule in book.of("reviewed-1", "train").curation] == ["Review"]
