"""The judge: what must fail a row fails it."""

import msgspec
import pytest

from agentworld.contract.delta import Prompt, leaf_of, shorten
from agentworld.contract.events import EngineCall, StepCaptured, StepRequest
from tests.agents.comparison import compare
from tests.agents.engine_log import Served


def served(name, prompt, response, **fields):
    return Served(
        **{
            "id": name,
            "caller": "k",
            "kind": "turn",
            "model": "m",
            "stream": True,
            "messages": [],
            "tools": "null",
            "prompt_ids": prompt,
            "response_ids": response,
            "logprobs": [-0.5 - token for token in response],
            "message": {"role": "assistant", "content": "hello"},
            "finish_reason": "stop",
            "offered": [],
            "called": [],
        }
        | fields
    )


def step(reply, leaves=(), **fields):
    values = {
        "event_id": reply.id,
        "event_time_ms": 1,
        "source": "gateway/0",
        "step_id": reply.id,
        "trajectory_id": "t",
        "prompt_id": "p",
        "status": "ok",
        "request": StepRequest(protocol="messages", model="m", stream=True, fingerprint=f"of {reply.id}"),
        "prompt": shorten(Prompt(ids=reply.prompt_ids, messages=[], tools=None), leaves),
        "response_ids": reply.response_ids,
        "response_logprobs": reply.logprobs,
        "message": msgspec.Raw(msgspec.json.encode(reply.message)),
        "finish_reason": "stop",
        "token_source": "engine",
        "engine": EngineCall(engine="e", request_id=reply.id),
        "started_at_ms": 1,
        "latency_ms": 1.0,
    }
    return StepCaptured(**values | fields)


def conversation(second_prompt):
    first, second = served("a", [1, 2], [3, 4]), served("b", second_prompt, [9])
    begun = step(first)
    leaf = leaf_of(begun, Prompt(ids=first.prompt_ids, messages=[], tools=None))
    return [first, second], [begun, step(second, [leaf])]


@pytest.mark.parametrize(
    ("second_prompt", "prefix_class", "kept"),
    [([1, 2, 3, 4, 5], "exact", 1), ([1, 2, 3, 7, 5], "rewritten", 0.75), ([1, 8, 3, 4, 5], "broken", 0.25)],
)
def test_the_prefix_class_says_what_changed(second_prompt, prefix_class, kept):
    compared = compare(*conversation(second_prompt))
    assert (compared.prefix_class, compared.prefix_kept) == (prefix_class, kept)
    assert compared.ids_exact
    assert compared.logprobs_aligned
    assert compared.prompts_exact
    assert not compared.problems


def test_a_call_that_is_not_in_the_log_is_a_problem():
    replies, steps = conversation([1, 2, 3, 4, 5])
    compared = compare(replies, steps[:1])
    assert compared.captured == 1
    assert compared.problems


def test_a_step_captured_twice_is_a_problem():
    replies, steps = conversation([1, 2, 3, 4, 5])
    assert compare(replies, [*steps, steps[0]]).problems


def test_an_id_that_differs_is_not_exact():
    replies, steps = conversation([1, 2, 3, 4, 5])
    other = msgspec.structs.replace(steps[1], response_ids=[8])
    assert not compare(replies, [steps[0], other]).ids_exact


def test_a_logprob_that_differs_is_not_aligned():
    replies, steps = conversation([1, 2, 3, 4, 5])
    other = msgspec.structs.replace(steps[0], response_logprobs=[-3.5, -4.500001])
    assert not compare(replies, [other, steps[1]]).logprobs_aligned


def test_a_message_that_was_not_sampled_is_a_problem():
    replies, steps = conversation([1, 2, 3, 4, 5])
    other = msgspec.structs.replace(steps[1], message=msgspec.Raw(b'{"role":"assistant","content":"hullo"}'))
    assert compare(replies, [steps[0], other]).problems


@pytest.mark.parametrize("change", [{"messages": ['{"role":"user"}']}, {"tools": "[]"}])
def test_a_prompt_that_the_engine_had_otherwise_is_not_exact(change):
    (first, second), steps = conversation([1, 2, 3, 4, 5])
    assert not compare([first, msgspec.structs.replace(second, **change)], steps).prompts_exact


def test_a_cancelled_step_is_a_problem_unless_its_client_had_gone():
    (first, second), steps = conversation([1, 2, 3, 4, 5])
    cut = msgspec.structs.replace(second, response_ids=[9, 10], logprobs=[-9.5, -10.5], finish_reason="abort")
    steps[1] = msgspec.structs.replace(steps[1], status="cancelled")
    assert compare([first, cut], steps).problems
    compared = compare([first, cut], steps, left={"of b"})
    assert compared.ids_exact
    assert compared.logprobs_aligned
    assert not compared.problems


def test_a_failed_step_is_a_problem():
    replies, steps = conversation([1, 2, 3, 4, 5])
    failed = msgspec.structs.replace(steps[1], status="failed")
    assert compare(replies, [steps[0], failed]).problems


def test_nothing_served_passes_nothing():
    compared = compare([], [])
    assert (compared.ids_exact, compared.logprobs_aligned) == (False, False)
