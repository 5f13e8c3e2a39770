"""Evaluators in the rules file: which run has which, and what a mistake says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentworld.contract.errors import InvalidInput
from stream_processors.evaluators.kinds import config_digest, decision_of
from stream_processors.rule_book import RuleBook
from stream_processors.rules import Rules
from tests.support.evaluated import judge_table, table

ROOT = Path(__file__).resolve().parents[4]

BOOK = """
[[default.evaluator]]
kind = "exact_match"
reward = "reward"

[[run]]
match = "essay-*"
[[run.evaluator]]
kind = "exact_match"
reward = "reward"
[[run.evaluator]]
kind = "judge"
url = "http://127.0.0.1:8000/v1"
model = "judge-7b"
rubric = "Rate {{answer}}."

[[run]]
match = "*"
channel = "val"
evaluator = []
"""


def test_a_run_has_the_evaluators_of_its_page_and_equal_ones_are_one() -> None:
    book = RuleBook.parse(BOOK, Rules())
    kinds = [
        [type(e).__name__ for e in book.of(*run).evaluators] for run in (("m", "train"), ("essay-1", "train"))
    ]
    assert kinds == [["ExactMatch"], ["ExactMatch", "Judge"]]
    assert book.of("essay-1", "val").evaluators == ()
    assert [type(e).__name__ for e in book.evaluators] == ["ExactMatch", "Judge"]


def test_evaluators_are_no_part_of_what_decisions_depend_on() -> None:
    book = RuleBook.parse(BOOK, Rules())
    assert book.of("m", "train").digest == book.of("essay-1", "train").digest == Rules().digest


JUDGE = 'kind = "judge"\nurl = "http://a/v1"\nmodel = "m"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('kind = "nice"', "'nice' - at `$.evaluator[0].kind`"),
        ('name = "x"', "missing required field `kind`"),
        ('kind = "exact_match"\nhits = 1', "unknown field `hits`"),
        ('kind = "exact_match"\nname = "a b"', "evaluator 'a b' is not a valid name"),
        ('kind = "exact_match"\nreward = "a/b"', "reward 'a/b' is not a valid name"),
        ('kind = "exact_match"\nhit = nan', "hit: must be finite"),
        ('kind = "exact_match"\nreject_below = 0.5\nhold_below = 0.1', "thresholds must rise"),
        ('kind = "exact_match"\nextract = "pattern"', "go together"),
        ('kind = "exact_match"\nextract = "pattern"\npattern = "("', "'(' is no regular expression"),
        (
            'kind = "exact_match"\n[[default.evaluator]]\nkind = "exact_match"',
            "several evaluators are named exact_match",
        ),
        ('kind = "judge"\nurl = "http://a/v1"\nmodel = "m"', "missing required field `rubric`"),
        (JUDGE + 'rubric = "Rate it."', "names nothing of the trajectory"),
        (JUDGE + 'rubric = "Rate {{anwser}}."', "the rubric names {{anwser}}"),
        (JUDGE + 'rubric = "{{answer}}"\nmin = 1', "min (1) must be less than max (1)"),
        (JUDGE.replace("http://a", "http://me:pw@a") + 'rubric = "{{answer}}"', "name it with api_key_env"),
        (JUDGE.replace("http://a/v1", "a") + 'rubric = "{{answer}}"', "must be an http or https URL"),
        (JUDGE + 'rubric = "{{answer}}"\ntries = 0', "$.evaluator[0].tries"),
        ('kind = "plugin"\nfunction = "a.b"', "must look like package.module:function"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(says)):
        RuleBook.parse(f"[[default.evaluator]]\n{text}", Rules())


def test_the_config_digest_changes_with_what_is_asked_and_not_with_how() -> None:
    plain = judge_table("http://a/v1")
    same = judge_table("http://a/v1", tries=9, timeout_ms=5, concurrency=1, max_calls=3, api_key_env="K")
    assert config_digest(plain) == config_digest(same)
    others = [judge_table("http://a/v1", **fields) for fields in ({"max": 2}, {"model": "n"}, {"name": "n"})]
    assert len({config_digest(each) for each in (plain, *others)}) == 4


def test_thresholds_give_one_verdict_or_none() -> None:
    full = table(kind="exact_match", reject_below=0.2, hold_below=0.5, accept_from=0.5)
    assert [decision_of(full, reward) for reward in (0.1, 0.2, 0.5, 0.9)] == [
        "reject",
        "hold",
        "accept",
        "accept",
    ]
    part = table(kind="exact_match", reject_below=0.2)
    assert [decision_of(part, reward) for reward in (0.1, 0.2)] == ["reject", None]


def test_the_tables_need_no_network_and_no_faust() -> None:
    code = (
        "import sys, stream_processors.rule_book; "
        "sys.exit(bool({'faust', 'aiohttp', 'confluent_kafka'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
