"""Each curation rule by its limits, and how several become one judgement."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_processors.curation import CurationRule, GroupFacts, MemberFacts, judge
from stream_processors.curation.facts import NGRAM, repeated_share
from stream_processors.curation.rule import Rule


def member(trajectory_id: str = "a", **facts: Any) -> MemberFacts:
    values = {"outcome": "succeeded", "policy": "default", "steps": 2, "response_tokens": 20} | facts
    return MemberFacts(trajectory_id=trajectory_id, **values)


def group(*members: MemberFacts, **facts: Any) -> GroupFacts:
    values = {"group_id": "g", "prompt_id": "p", "round": 0, "rollouts": len(members)} | facts
    return GroupFacts(members=members, **values)


def rule(kind: str, **limits: Any) -> Rule:
    return msgspec.convert({"rule": kind} | limits, CurationRule)


def found(made: Rule, facts: GroupFacts) -> list[str | None]:
    return [finding.trajectory_id for finding in made.findings(facts)]


@pytest.mark.parametrize(
    ("made", "meets", "breaks"),
    [
        (
            rule("policy_lag", max_versions=2),
            member(policy_version_min=5),
            member(policy_version_min=4),
        ),
        (rule("outcome", outcomes=["errored"]), member(outcome="failed"), member(outcome="errored")),
        (rule("length", max_steps=2), member(steps=2), member(steps=3)),
        (rule("length", min_steps=2), member(steps=2), member(steps=1)),
        (
            rule("length", min_response_tokens=20),
            member(response_tokens=20),
            member(response_tokens=19),
        ),
        (
            rule("length", max_response_tokens=20),
            member(response_tokens=20),
            member(response_tokens=21),
        ),
        (
            rule("length", max_step_response_tokens=9),
            member(longest_response_tokens=9),
            member(longest_response_tokens=10),
        ),
        (
            rule("length", max_prompt_tokens=9),
            member(longest_prompt_tokens=9),
            member(longest_prompt_tokens=10),
        ),
        (rule("empty_response"), member(), member(empty_responses=1)),
        (rule("empty_response"), member(), member(steps=0)),
        (rule("repetition", max_share=0.5), member(repeated_share=0.5), member(repeated_share=0.51)),
        (rule("token_source"), member(token_sources={"engine": 2}), member(token_sources={"none": 1})),
        (
            rule("token_source", allowed=["engine", "retokenized"]),
            member(token_sources={"retokenized": 2}),
            member(token_sources={"engine": 1, "none": 1}),
        ),
        (rule("gaps"), member(gaps={"truncated": 3}), member(gaps={"late": 1})),
        (
            rule("gaps", kinds=["truncated"], max_gaps=1),
            member(gaps={"truncated": 1}),
            member(gaps={"truncated": 2}),
        ),
    ],
)
def test_a_rule_finds_the_trajectory_that_breaks_its_limit_and_no_other(
    made: Rule, meets: MemberFacts, breaks: MemberFacts
) -> None:
    bad = msgspec.structs.replace(breaks, trajectory_id="bad")
    assert found(made, group(meets, bad, policy_versions={"default": 7})) == ["bad"]
    [finding] = made.findings(group(meets, bad, policy_versions={"default": 7}))
    assert finding.value, "the value that decided is named"


def test_zero_variance_is_about_the_rewards_that_are_there() -> None:
    made = rule("zero_variance")
    assert found(made, group(member(reward=1.0), member(reward=1.0), member(reward=None))) == [None]
    assert found(made, group(member(reward=1.0), member(reward=0.0))) == []
    assert found(made, group(member(reward=1.0), member(reward=None))) == []
    assert found(rule("zero_variance", tolerance=0.1), group(member(reward=1.0), member(reward=0.95))) == [
        None
    ]


def test_an_unknown_version_is_no_lag() -> None:
    made = rule("policy_lag", max_versions=0)
    assert found(made, group(member(policy_version_min=None), policy_versions={"default": 9})) == []
    assert found(made, group(member(policy_version_min=0), policy_versions={})) == []


def test_an_outcome_may_have_a_share_of_the_group() -> None:
    made = rule("outcome", outcomes=["failed"], max_share=0.5)
    assert found(made, group(member("a", outcome="failed"), member("b"))) == []
    assert found(made, group(member("a", outcome="failed"), member("b", outcome="failed"))) == ["a", "b"]


def test_a_duplicate_prompt_is_counted_by_groups_released_before() -> None:
    assert found(rule("duplicate_prompt"), group(member(), earlier_groups=["g0"])) == [None]
    assert found(rule("duplicate_prompt", max_earlier=1), group(member(), earlier_groups=["g0"])) == []


def test_a_review_draws_the_same_share_of_groups_each_time() -> None:
    made = rule("review", share=0.25)
    drawn = [name for name in map(str, range(2_000)) if found(made, group(group_id=name))]
    assert drawn == [name for name in map(str, range(2_000)) if found(made, group(group_id=name))]
    assert 400 < len(drawn) < 600
    assert made.verdict == "hold"


def test_the_strictest_rule_decides_and_of_equal_ones_the_first() -> None:
    facts = group(member(reward=1.0, steps=9), member(reward=1.0, steps=9))
    rules = [
        rule("review"),
        rule("zero_variance", name="no_signal"),
        rule("length", max_steps=3),
    ]
    judgement = judge(rules, facts)
    assert (judgement.decision, judgement.rule) == ("reject", "no_signal")
    assert judge(rules[:1], facts).decision == "hold"
    assert judge([], facts).decision == "accept"


def test_an_accepting_rule_ends_the_asking() -> None:
    facts = group(member(reward=1.0), member(reward=1.0))
    trusted = rule("review", verdict="accept", name="trusted")
    judgement = judge([trusted, rule("zero_variance")], facts)
    assert (judgement.decision, judgement.rule) == ("accept", "trusted")


def test_a_trajectory_that_is_left_out_is_not_seen_by_later_rules() -> None:
    facts = group(
        member("long", steps=9, reward=0.0),
        member("a", steps=1, reward=1.0),
        member("b", steps=1, reward=1.0),
    )
    rules = [rule("length", max_steps=3, on="trajectory"), rule("zero_variance")]
    judgement = judge(rules, facts)
    assert list(judgement.excluded) == ["long"]
    assert (judgement.decision, judgement.rule) == ("reject", "zero_variance")


def test_repetition_is_none_in_distinct_tokens_and_near_one_in_a_loop() -> None:
    assert repeated_share(list(range(500))) == 0.0
    assert repeated_share([7] * 500) == pytest.approx(1 - 1 / (500 - NGRAM + 1))
    assert repeated_share([]) == 0.0


@given(st.lists(st.integers(0, 5), max_size=60))
def test_repetition_counts_what_a_plain_count_does(ids: list[int]) -> None:
    grams = [tuple(ids[at : at + NGRAM]) for at in range(len(ids) - NGRAM + 1)]
    repeats = sum(gram in grams[:at] for at, gram in enumerate(grams))
    expected = repeats / len(grams) if len(grams) > 1 else 0.0
    assert repeated_share(ids) == pytest.approx(expected)
