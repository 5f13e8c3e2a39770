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
    swe = book.of("swe-1", "train").group
    assert (swe.policy, swe.min_k, swe.max_refills) == ("partial", 4, 2)
    online = book.of("online-1", "train").batch
    assert (online.order, online.max_policy_lag, online.max_unconsumed) == ("freshest", 2, 1)
    validation = book.of("online-1", "val")
    assert (validation.curation, validation.batch.groups, validation.batch.order) == ((), 1, "fifo")
    assert [type(rule).__name__ for rule in book.of("reviewed-1", "train").curation] == ["Review"]
