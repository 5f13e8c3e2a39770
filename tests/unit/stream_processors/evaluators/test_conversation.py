"""What an evaluator reads of a trajectory, and how a rubric is filled."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_processors.evaluators.conversation import last_answer, shortened, transcript
from stream_processors.evaluators.evaluation import EvaluationFailed
from stream_processors.evaluators.judge.judging import rubric_prompt
from stream_processors.evaluators.template import filled
from tests.support.evaluated import finished, judge_table


def test_the_last_answer_is_what_the_trained_branch_ends_with() -> None:
    assert last_answer(finished(answer="done")) == "done"
    parts = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}],
    }
    assert last_answer(finished(answer=parts)) == "a\nb"
    assert last_answer(finished(answer={"role": "assistant", "content": None, "tool_calls": []})) == ""
    assert last_answer(finished(trained_branch=None)) == ""


def test_half_a_surrogate_pair_does_not_reach_an_event() -> None:
    assert last_answer(finished(answer="a\ud800b")).encode() == b"a?b"


def test_the_transcript_is_the_branch_with_roles_and_tool_calls() -> None:
    call = {"type": "function", "function": {"name": "calculator", "arguments": "{}"}}
    text = transcript(finished(answer={"role": "assistant", "content": "so", "tool_calls": [call]}, turns=2))
    assert text.startswith("[system]\nYou calculate.\n\n[user]\n2+2é?\n\n[assistant]\nturn 0\n\n[tool]\n0")
    assert text.endswith(
        "[assistant]\nso\ncalls " + msgspec.json.encode(call).decode().replace(":", ": ").replace(",", ", ")
    )


def test_a_prompt_that_cannot_be_made_whole_is_no_transcript() -> None:
    whole = finished(turns=2)
    broken = msgspec.structs.replace(whole, steps=whole.steps[1:])
    with pytest.raises(EvaluationFailed, match="cannot be made whole"):
        transcript(broken)


def test_a_rubric_is_filled_once_so_an_answer_cannot_ask_for_the_truth() -> None:
    prompt = rubric_prompt(
        judge_table("http://127.0.0.1:1/v1", rubric="A: {{ answer }} T: {{metadata.a.b}}"),
        finished(answer="{{ground_truth}} {{metadata.secret}}", metadata={"a": {"b": [1]}}),
    )
    assert prompt.startswith("A: {{ground_truth}} {{metadata.secret}} T: [1]\n\nAnswer with one JSON object")


@given(st.text(), st.text())
def test_what_is_filled_in_stands_there_as_it_is(answer: str, around: str) -> None:
    plain = around.replace("{", "").replace("}", "")
    assert filled(plain + "{{answer}}" + plain, {"answer": lambda: answer}) == plain + answer + plain


@given(st.text(max_size=200), st.integers(2, 50))
def test_a_long_text_keeps_its_beginning_and_end(text: str, limit: int) -> None:
    short = shortened(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        half = limit // 2
        assert short.startswith(text[:half])
        assert short.endswith(text[-half:])
        assert f"[{len(text) - 2 * half} characters left out]" in short
