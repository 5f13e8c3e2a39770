"""The judge: what must fail a row fails it, and what may happen does not."""

import dataclasses

import msgspec
import pytest

from agentworld.contract.delta import Prompt, shorten
from agentworld.contract.events import EngineCall, StepCaptured, StepRequest
from tests.faults import plays
from tests.faults.client import Call
from tests.faults.engine_log import Ended
from tests.faults.judgement import judge
from tests.faults.wire import KINDS
from tests.support.builders import registered

CALL = Call("m", "t", KINDS[0], plays.ANSWER, "digest", "answered", step_id="s", text="hi", http_status=200)
NOTED = Ended(mark="m", id="c", prompt_ids=[1, 2], response_ids=[3], logprobs=[-0.5], text="hi", end="whole")
STEP = StepCaptured(
    event_id="s",
    event_time_ms=1,
    source="gateway/0",
    step_id="s",
    trajectory_id="t",
    prompt_id="p",
    status="ok",
    request=StepRequest(protocol="chat_completions", model="m", stream=True, fingerprint="digest"),
    prompt=shorten(Prompt(ids=[1, 2], messages=[b'{"role":"user"}'], tools=None), []),
    response_ids=[3],
    response_logprobs=[-0.5],
    finish_reason="stop",
    token_source="engine",
    engine=EngineCall(engine="e", request_id="c"),
    started_at_ms=1,
    latency_ms=1.0,
)
AGAIN = msgspec.structs.replace(STEP, event_id="s2", step_id="s2")


def call(**changes):
    return dataclasses.replace(CALL, **changes)


def step(**changes):
    return msgspec.structs.replace(STEP, **changes)


def judged(calls, events, noted=(NOTED,), trajectories=()):
    return judge(calls, trajectories, noted, events)


def test_an_answered_call_that_is_captured_once_is_well():
    row = judged([CALL], [STEP])
    assert (row.answered, row.lost, row.duplicated, row.inexact, row.problems) == (1, 0, 0, 0, [])
    assert row.kinds == {"chat_completions stream": {"answered": 1}}


def test_a_record_that_is_repeated_as_it_was_is_no_duplicate():
    row = judged([CALL], [STEP, STEP])
    assert (row.repeated, row.lost, row.duplicated, row.problems) == (1, 0, 0, [])


@pytest.mark.parametrize(
    "events",
    [
        [],
        [step(status="cancelled")],
        [step(step_id="other")],
        [step(request=StepRequest(protocol="messages", model="m", stream=True, fingerprint="other"))],
    ],
)
def test_an_answered_call_without_its_step_is_lost(events):
    row = judged([CALL], events)
    assert (row.answered, row.lost) == (1, 1)
    assert row.problems


@pytest.mark.parametrize(
    "second",
    [
        AGAIN,
        msgspec.structs.replace(AGAIN, status="failed"),
        msgspec.structs.replace(AGAIN, request=msgspec.structs.replace(STEP.request, fingerprint="other")),
    ],
)
def test_two_step_ids_of_one_request_or_of_one_completion_are_a_duplicate(second):
    row = judged([CALL], [STEP, second])
    assert (row.lost, row.duplicated) == (0, 1)


def test_a_step_with_two_contents_is_a_problem():
    assert judged([CALL], [STEP, step(latency_ms=2.0)]).problems


@pytest.mark.parametrize(
    "noted",
    [
        msgspec.structs.replace(NOTED, prompt_ids=[1, 9]),
        msgspec.structs.replace(NOTED, response_ids=[9]),
        msgspec.structs.replace(NOTED, logprobs=[-0.6]),
        msgspec.structs.replace(NOTED, text="ho"),
        msgspec.structs.replace(NOTED, mark="another call"),
        msgspec.structs.replace(NOTED, id="another completion"),
    ],
)
def test_another_step_than_the_engine_sampled_is_inexact(noted):
    assert judged([CALL], [STEP], [noted]).inexact == 1


def test_a_prompt_whose_base_is_missing_is_a_problem():
    orphan = step(prompt=msgspec.structs.replace(STEP.prompt, base_step_id="gone"))
    row = judged([CALL], [orphan])
    assert row.inexact == 1
    assert any("cannot be expanded" in problem for problem in row.problems)


def test_a_failed_call_must_be_captured_as_it_ended():
    failed = call(play=plays.SILENT, outcome="failed", http_status=504)
    for statuses, captured in ((["timed_out"], 1), (["failed"], 0), ([], 0)):
        row = judged([failed], [step(status=status) for status in statuses])
        assert (row.failed, row.failed_captured, bool(row.problems)) == (1, captured, not captured)


def test_a_call_that_the_engine_answered_must_not_be_told_to_have_failed():
    assert judged([call(outcome="failed", http_status=404)], []).problems
    assert judged([call(outcome="failed", http_status=502)], [STEP]).problems


def test_what_was_not_answered_may_be_in_the_log_or_not():
    for outcome in ("broken", "refused"):
        for events in ([], [STEP]):
            row = judged([call(outcome=outcome)], events)
            assert (getattr(row, outcome), row.lost, row.problems) == (1, 0, [])
            assert getattr(row, f"{outcome}_captured") == len(events)


def test_an_answered_registration_must_be_in_the_log():
    row = judged([], [registered("here")], trajectories=["here", "gone"])
    assert (row.registered, row.registrations_lost) == (2, 1)
