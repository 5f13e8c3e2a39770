"""Delta encoding: expansion gives back what was captured, or says that it cannot."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.contract.delta import (
    Leaf,
    Prompt,
    common_prefix,
    expand,
    expand_prompt,
    leaf_of,
    shorten,
)
from agentworld.contract.errors import IntegrityError

TOKENS = st.lists(st.integers(0, 3), max_size=12)
MESSAGES = st.lists(st.sampled_from([b'{"a":1}', b'{"b":2}', b'"c"']), max_size=5)
TOOLS = st.sampled_from([None, b"[]", b'[{"t":1}]'])
PROMPTS = st.builds(Prompt, ids=TOKENS, messages=MESSAGES, tools=TOOLS)


class Step(msgspec.Struct):
    step_id: str
    prompt: object
    response_ids: list[int]
    message: object


@given(a=TOKENS, b=TOKENS)
def test_common_prefix_is_the_longest(a, b):
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_sequences_of_different_types_share_a_prefix_too():
    assert common_prefix([1, 2, 3], (1, 2, 4)) == 2


@given(turns=st.lists(st.tuples(PROMPTS, TOKENS, st.booleans()), min_size=1, max_size=6), data=st.data())
def test_expansion_undoes_shortening_in_any_order(turns, data):
    steps, leaves, whole = [], [], {}
    for number, (prompt, response, answered) in enumerate(turns):
        step = Step(
            step_id=f"s{number}",
            prompt=shorten(prompt, leaves),
            response_ids=response,
            message=msgspec.Raw(b'{"role":"assistant"}') if answered else msgspec.UNSET,
        )
        steps.append(step)
        leaves.append(leaf_of(step, prompt))
        whole[step.step_id] = prompt
    got = expand(data.draw(st.permutations(steps)))
    assert {k: (list(p.ids), list(p.messages), p.tools) for k, p in got.items()} == {
        k: (list(p.ids), list(p.messages), p.tools) for k, p in whole.items()
    }


def test_a_turn_that_extends_the_last_appends_only_what_is_new():
    leaf = Leaf(step_id="a", ids=[1, 2, 3], messages=[b"1", b"2"], tools=b"[]")
    delta = shorten(Prompt(ids=[1, 2, 3, 4], messages=[b"1", b"2", b"3"], tools=b"[]"), [leaf])
    assert (delta.base_step_id, delta.keep_tokens, delta.append_ids) == ("a", 3, [4])
    assert (delta.keep_messages, len(delta.append_messages), delta.tools_kept) == (2, 1, True)


def _delta(**changes):
    leaf = Leaf(step_id="a", ids=[1, 2, 3], messages=[b"1"], tools=None)
    delta = shorten(Prompt(ids=[1, 2, 9], messages=[b"1", b"2"], tools=None), [leaf])
    return leaf, msgspec.structs.replace(delta, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"keep_tokens": 4}, "keeps 4 tokens"),
        ({"keep_messages": 2}, "2 messages"),
        ({"base_step_id": "b"}, "base step b is missing"),
        ({"base_step_id": None}, "names none"),
        ({"append_ids": [8]}, "another digest"),
        ({"prompt_tokens": 4}, "another digest"),
    ],
)
def test_a_delta_that_does_not_fit_is_an_integrity_error(changes, said):
    leaf, delta = _delta(**changes)
    with pytest.raises(IntegrityError, match=said):
        expand_prompt(delta, leaf)


def test_a_circular_base_is_an_integrity_error():
    _, delta = _delta(base_step_id="x")
    with pytest.raises(IntegrityError, match="itself"):
        expand([Step("x", delta, [], msgspec.UNSET)])


def test_a_missing_base_is_an_integrity_error():
    _, delta = _delta(base_step_id="gone")
    with pytest.raises(IntegrityError, match="gone is missing"):
        expand([Step("x", delta, [], msgspec.UNSET)])
