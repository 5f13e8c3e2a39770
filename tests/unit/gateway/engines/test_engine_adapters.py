"""Golden replies of each kind of engine, read whole and in pieces; what each engine is asked for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects import ChatCompletions
from gateway.engine import Answer, EngineObject, MalformedReply
from gateway.engines import adapter_of
from gateway.sse import SseParser
from tests.unit.gateway.engines.reading_replies import body_of, call_of, described_stream, described_whole

GOLDEN = Path(__file__).parent / "golden"
KINDS = ["vllm", "policy_server", "sglang", "openai"]
WITH_IDS = ["vllm", "policy_server", "sglang"]
NEVER_SHOWN = ("token_ids", "sglext", "meta_info", "weight_version", "metadata")


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_reply_gives_the_golden_answer(kind: str) -> None:
    reply = (GOLDEN / f"{kind}.whole.reply").read_bytes()
    assert list(described_whole(kind, reply)) == [
        golden(f"{kind}.whole.answer"),
        golden(f"{kind}.whole.client"),
    ]


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), places=st.lists(st.integers(0, 20_000), max_size=40))
def test_any_cut_of_a_stream_gives_the_golden_answer(kind: str, places: list[int]) -> None:
    data = (GOLDEN / f"{kind}.stream.reply").read_bytes()
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    parts = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert list(described_stream(kind, parts)) == [
        golden(f"{kind}.stream.answer"),
        golden(f"{kind}.stream.client"),
    ]


@pytest.mark.parametrize("form", ["whole", "stream"])
@pytest.mark.parametrize("kind", WITH_IDS)
def test_ids_and_logprobs_are_there_and_aligned(kind: str, form: str) -> None:
    answer = golden(f"{kind}.{form}.answer")
    (choice,) = answer["choices"]
    assert answer["prompt_ids"] == [9707, 11, 1879]
    assert choice["ids"] == [785, 1110, 9454, 151645]
    assert choice["logprobs"] == [-0.25, -0.5, -0.125, -0.0625]


@pytest.mark.parametrize("form", ["whole", "stream"])
def test_all_engines_give_the_same_turn(form: str) -> None:
    answers = [golden(f"{kind}.{form}.answer")["choices"][0]["message"] for kind in WITH_IDS]
    assert all(message == answers[0] for message in answers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_client_sees_nothing_of_the_engine(kind: str) -> None:
    dialect = ChatCompletions()
    whole, call = EngineObject.parse((GOLDEN / f"{kind}.whole.reply").read_bytes()), call_of()
    shown = dialect.reply(call, adapter_of(kind).reading(call, Answer()).whole(whole)).decode()
    call = call_of(stream=True)
    reading, client = adapter_of(kind).reading(call, Answer()), dialect.stream(call)
    for data in SseParser().feed((GOLDEN / f"{kind}.stream.reply").read_bytes()):
        if data != b"[DONE]" and (chunk := reading.chunk(EngineObject.parse(data))) is not None:
            shown += client.feed(chunk).decode()
    assert "Think" in shown
    assert not [name for name in NEVER_SHOWN if name in shown]


def test_a_client_that_asked_for_ids_gets_sglangs_in_vllms_form() -> None:
    data = (GOLDEN / "sglang.stream.reply").read_bytes()
    _, shown = described_stream("sglang", [data], return_token_ids=True)
    (with_ids,) = [chunk for chunk in shown if "prompt_token_ids" in chunk]
    assert with_ids["prompt_token_ids"] == [9707, 11, 1879]
    assert with_ids["choices"][0]["token_ids"] == [785, 1110, 9454, 151645]


def test_sglangs_meta_info_stands_in_for_ids_that_are_missing() -> None:
    reply = json.loads((GOLDEN / "sglang.whole.reply").read_bytes())
    del reply["choices"][0]["response_token_ids"]
    answer, _ = described_whole("sglang", json.dumps(reply).encode())
    assert answer["choices"][0]["ids"] == [785, 1110, 9454, 151645]


def test_two_choices_of_sglang_keep_their_own_ids() -> None:
    ends = [{"index": i, "delta": {"content": "x"}, "finish_reason": "stop"} for i in range(2)]
    chunks = [{"choices": ends}, {"choices": [], "sglext": {"input_ids": [1], "output_ids": [[2], [3, 4]]}}]
    data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()
    answer, _ = described_stream("sglang", [data], n=2)
    assert [choice["ids"] for choice in answer["choices"]] == [[2], [3, 4]]


@pytest.mark.parametrize("extension", ['{"output_ids": 5}', '{"input_ids": ["a"]}', "[]"])
def test_an_extension_that_cannot_be_read_is_a_malformed_reply(extension: str) -> None:
    data = f'data: {{"choices": [], "sglext": {extension}}}\n\n'.encode()
    with pytest.raises(MalformedReply):
        described_stream("sglang", [data])


def test_each_engine_is_asked_in_its_own_words() -> None:
    whole, stream = call_of(), call_of(stream=True)
    vllm = body_of("vllm", stream)
    assert vllm["model"] == "tiny"
    assert vllm["return_token_ids"] is True
    assert vllm["logprobs"] is True
    assert vllm["stream_options"] == {"include_usage": True}
    assert body_of("sglang", whole)["return_token_ids"] is True
    sglang = body_of("sglang", stream)
    assert "return_token_ids" not in sglang
    assert sglang["return_input_ids_in_sglext"] is sglang["return_output_ids_in_sglext"] is True
    assert body_of("openai", whole).keys() == {"model", "messages", "logprobs"}
    assert "logprobs" not in body_of("openai", whole, logprobs=False)


def test_sglang_is_never_asked_for_what_its_streams_refuse() -> None:
    assert "return_token_ids" not in body_of("sglang", call_of(stream=True, return_token_ids=True))


def test_a_plain_api_gets_no_fields_of_inference_engines_and_the_clients_own_travel() -> None:
    fields = {"return_token_ids": True, "chat_template_kwargs": {}, "top_k": 5, "x": 1, "temperature": 0.5}
    body = body_of("openai", call_of(**fields))
    assert body.keys() == {"model", "messages", "logprobs", "x", "temperature"}


@pytest.mark.parametrize(
    ("kind", "name"), [("vllm", "reasoning"), ("sglang", "reasoning_content"), ("openai", None)]
)
@pytest.mark.parametrize("sent", ["reasoning", "reasoning_content"])
def test_reasoning_in_the_history_goes_by_the_engines_name(kind: str, name: str | None, sent: str) -> None:
    turn = {"role": "assistant", "content": "a", sent: "thought"}
    body = body_of(kind, call_of(messages=[{"role": "user", "content": "hi"}, turn]))
    expected = {"role": "assistant", "content": "a"} | ({} if name is None else {name: "thought"})
    assert body["messages"][1] == expected


def test_reasoning_that_the_client_does_not_want_is_asked_for_and_hidden() -> None:
    call = {"include_reasoning": False}
    assert body_of("vllm", call_of(**call))["include_reasoning"] is True
    data = (GOLDEN / "vllm.whole.reply").read_bytes()
    answer, shown = described_whole("vllm", data, **call)
    assert answer["choices"][0]["message"]["reasoning"] == "Think"
    assert "reasoning" not in shown["choices"][0]["message"]


def test_a_field_that_an_engine_refuses_is_left_out_and_the_clients_own_value_comes_back() -> None:
    body = body_of("vllm", call_of(logprobs=False), without=["logprobs", "return_weight_versions"])
    assert body["logprobs"] is False
    assert "return_weight_versions" not in body


def test_weight_versions_of_a_choice_count() -> None:
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop", "weight_versions": ["3", "4"]}
    answer, shown = described_whole("vllm", json.dumps({"choices": [choice]}).encode())
    assert answer["versions"] == [3, 4]
    assert "weight_versions" not in shown["choices"][0]
