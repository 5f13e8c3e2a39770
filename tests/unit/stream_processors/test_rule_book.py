"""The rules file: what a run gets, and what a mistake in it says."""

from __future__ import annotations

import re

import pytest

from agentworld.contract.errors import InvalidInput
from stream_processors.rule_book import RuleBook
from stream_processors.rules import BatchRules, Rules

BOOK = """
[default.seal]
grace_ms = 500
[default.batch]
groups = 4
[[default.curation]]
rule = "zero_variance"

[[run]]
match = "math-*"
[run.group]
policy = "partial"
min_k = 2
deadline_ms = 60000
[run.batch]
order = "freshest"

[[run]]
match = "*"
channel = "val"
curation = []
[run.batch]
groups = 1
"""


def book(text: str = BOOK) -> RuleBook:
    return RuleBook.parse(text, Rules(batch=BatchRules(linger_ms=7)))


def test_later_pages_win_over_earlier_ones_and_all_over_the_default() -> None:
    train, val = book().of("math-7", "train"), book().of("math-7", "val")
    assert (train.group.policy, train.group.min_k, train.group.deadline_ms) == ("partial", 2, 60_000)
    assert (train.batch.groups, train.batch.order, train.batch.linger_ms) == (4, "freshest", 7)
    assert (val.batch.groups, val.batch.order, val.curation) == (1, "freshest", ())
    other = book().of("code", "train")
    assert (other.group.policy, other.seal.grace_ms, len(other.curation)) == ("wait", 500, 1)


def test_equal_rules_have_equal_digests_and_others_do_not() -> None:
    assert book().of("a", "train").digest == book().of("b", "train").digest
    assert book().of("a", "train").digest != book().of("math-1", "train").digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "one [default] and any number of [[run]]"),
        ("[default.seals]\ngrace_ms = 1", "seals"),
        ("[default.seal]\ngrace = 1", "grace"),
        ("[default.seal]\ngrace_ms = -1", "$.seal.grace_ms"),
        ('[default.group]\npolicy = "sometimes"', "sometimes"),
        ('[default.group]\npolicy = "drop"\ndeadline_ms = 0', "needs a deadline_ms"),
        ("[default.group]\nmax_refills = 1", "go together"),
        ('[[default.curation]]\nrule = "nice"', "nice"),
        ('[[default.curation]]\nrule = "policy_lag"', "max_versions"),
        ('[[default.curation]]\nrule = "length"\nmax_step = 1', "max_step"),
        ("[[run]]\nchannel = 'val'", "[[run]] number 1"),
        ("[run]\nmatch = 'a'", "two brackets"),
        ("[[run]]\nmatch = 'a'\nextra = 1", "extra"),
        ("[[run]]\nmatch = 'a'\n[run.batch]\ngroups = 0", "number 1 (a)"),
        ("default = 3", "[default]"),
        ("[default.seal", "not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(says)):
        book(text)


def test_a_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(InvalidInput, match=r"rules\.toml cannot be read"):
        RuleBook.read(tmp_path / "rules.toml", Rules())


def test_a_file_with_a_mistake_is_named(tmp_path) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"rules\.toml"):
        RuleBook.read(path, Rules())
