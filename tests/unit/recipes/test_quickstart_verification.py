"""The demo's arithmetic notices whatever does not add up."""

from dataclasses import replace

import pytest

from recipes.quickstart.engine.journal import Entry
from recipes.quickstart.verification import Evidence, StepTokens, verify


def entry(name):
    return Entry(
        id=name, choice=0, prompt_ids=[1, 2], response_ids=[3, 4], logprobs=[-0.5, -1.0], finish_reason="stop"
    )


def step(name):
    return StepTokens(f"step-{name}", name, 0, (1, 2), [3, 4], (-0.5, -1.0))


def evidence(**changes):
    names = ["a", "b"]
    whole = Evidence(
        answered_ids=names,
        captured=[step(name) for name in names],
        stored=[step(name) for name in names],
        decisions={"g": ("group_ready", "complete")},
        groups_total=1,
        journal={(name, 0): entry(name) for name in names},
    )
    return replace(whole, **changes)


def test_a_run_that_adds_up_has_no_problems():
    verdict = verify(evidence())
    assert verdict.problems == []
    figures = verdict.figures
    assert figures["answered_calls"] == figures["captured_steps"] == figures["stored_steps"] == 2
    assert figures["groups_total"] == figures["groups_ready"] == figures["groups_resolved"] == 1
    assert figures["ids_exact"] is True
    assert figures["logprobs_aligned"] is True


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answered_ids": ["a", "b", "c"]}, "1 answered calls are not in the log"),
        ({"answered_ids": ["a"]}, "1 ok steps more than agents"),
        ({"stored": [step("a")]}, "the log holds 2 ok steps, ClickHouse 1"),
        ({"stored": [step("a"), step("b"), step("b")]}, "1 steps are doubled"),
        ({"decisions": {}}, "1 of 1 groups are unresolved"),
        ({"decisions": {"g": ("group_held", "waits")}}, "unresolved"),
        ({"decisions": {"g": ("group_expired", "")}}, "unresolved"),
        ({"captured": [], "stored": [], "answered_ids": []}, "holds no step"),
        ({"journal": {("a", 0): entry("a")}}, "that the engine did not sample"),
    ],
)
def test_what_does_not_add_up_is_said(changes, said):
    assert any(said in problem for problem in verify(evidence(**changes)).problems)


@pytest.mark.parametrize("side", ["captured", "stored"])
@pytest.mark.parametrize(
    ("change", "figure"),
    [
        ({"response_ids": [3, 5]}, "ids_exact"),
        ({"prompt_ids": [1]}, "ids_exact"),
        ({"logprobs": (-0.5, -1.0000001)}, "logprobs_aligned"),
        ({"logprobs": (-0.5,)}, "logprobs_aligned"),
    ],
)
def test_one_wrong_token_is_enough(side, change, figure):
    verdict = verify(evidence(**{side: [step("a"), replace(step("b"), **change)]}))
    assert verdict.figures[figure] is False
    assert "step-b" in verdict.problems[0]


def test_a_captured_call_whose_client_was_killed_is_fine_but_a_lost_one_never():
    assert verify(evidence(answered_ids=["a"]), clients_lost_answers=True).problems == []
    assert verify(evidence(answered_ids=["c"]), clients_lost_answers=True).problems != []
