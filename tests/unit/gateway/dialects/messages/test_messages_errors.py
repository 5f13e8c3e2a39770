"""Failures as Anthropic's clients know them, and the counting of tokens."""

from __future__ import annotations

import json

import pytest

from gateway.dialects.messages import PING, Messages, count_reply, counted, estimate, tokenize_body
from gateway.engine import MalformedReply
from gateway.failures import Failure
from tests.unit.gateway.dialects.messages.samples import GOLDEN, STOPS, dialect


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_status_gives_anthropics_error_type(status: int, kind: str) -> None:
    body = json.loads(Messages().error(Failure(status, "code", "what to do")))
    assert body == {"type": "error", "error": {"type": kind, "message": "what to do"}}


def test_error_within_a_stream_is_an_error_event() -> None:
    stream = Messages().stream(Messages().parse(STOPS))
    event = stream.fail(Failure(503, "unavailable", "later")).decode()
    assert event == (
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"later"}}\n\n'
    )
    assert PING == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_field_at_fault_stands_in_the_message() -> None:
    body = json.loads(Messages().error(Failure(400, "bad", "must be less", param="top_k")))
    assert body["error"]["message"] == "`top_k`: must be less"


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
            "(4500 in the messages, 500 in the completion). Please reduce the length.",
            "prompt is too long: 4500 tokens > 4096 maximum",
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 500 output tokens "
            "and your prompt contains at least 3597 input tokens, for a total of at least 4097 tokens.",
            "input length and `max_tokens` exceed context limit: 3597 + 500 > 4096, "
            "decrease input length or `max_tokens` and try again",
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context "
            "length is 8192 tokens and your request has 100 input tokens (32000 > 8192 - 100).",
            "input length and `max_tokens` exceed context limit: 100 + 32000 > 8192, "
            "decrease input length or `max_tokens` and try again",
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested "
            "a total of 5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion.",
            "input length and `max_tokens` exceed context limit: 4000 + 1000 > 4096, "
            "decrease input length or `max_tokens` and try again",
        ),
    ],
)
def test_prompt_that_does_not_fit_is_told_in_words_that_make_clients_compact(
    engine: str, expected: str
) -> None:
    body = json.loads(Messages().error(Failure(400, "upstream_error", engine)))
    assert body["error"] == {"type": "invalid_request_error", "message": expected}


def test_tokenize_asks_for_the_prompt_that_a_completion_would_have() -> None:
    call = dialect().parse((GOLDEN / "requests" / "every_parameter.request.json").read_bytes())
    body = json.loads(tokenize_body(call, model="served"))
    assert body.keys() == {"model", "messages", "tools", "chat_template_kwargs"}
    assert body["messages"] == [json.loads(m) for m in call.messages]
    assert counted(b'{"count": 12, "max_model_len": 4096, "tokens": [1]}') == 12
    with pytest.raises(MalformedReply):
        counted(b'{"detail":"Not Found"}')


def test_count_tokens_takes_a_body_without_max_tokens_and_an_estimate_says_so() -> None:
    call = dialect().parse(
        b'{"model":"m","messages":[{"role":"user","content":"how long is this?"}],"tools":[]}'
    )
    assert 5 < estimate(call) < 25
    assert json.loads(count_reply(7, estimated=False)) == {"input_tokens": 7}
    assert json.loads(count_reply(7, estimated=True)) == {"input_tokens": 7, "estimated": True}


def test_estimate_does_not_count_the_bytes_of_an_image() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}
    turn = {"role": "user", "content": [{"type": "image", "source": image}]}
    call = dialect().parse(json.dumps({"model": "m", "messages": [turn]}).encode())
    assert 1500 <= estimate(call) < 1600
