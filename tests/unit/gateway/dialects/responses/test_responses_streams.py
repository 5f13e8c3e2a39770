from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentworld.contract.errors import InvalidInput
from gateway.dialects import ChatCompletions
from gateway.dialects.base import ClientStream, Dialect
from gateway.dialects.responses import Responses
from gateway.engine import EngineObject, MalformedReply
from gateway.failures import Failure
from tests.unit.gateway.dialects.responses.engine_turns import Call, Turn, chunks, engine_object, whole
from tests.unit.gateway.dialects.responses.freeze import GOLDEN
from tests.unit.gateway.dialects.responses.samples import (
    CODEX,
    CUT,
    PARALLEL,
    TEXT,
    call_of,
    dialect,
    events_of,
    golden_streams,
    streamed,
)

STREAMS = golden_streams()


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_as_frozen(name: str) -> None:
    assert STREAMS[name].decode() == (GOLDEN / "streams" / f"{name}.sse").read_bytes().decode()


@pytest.mark.parametrize("name", STREAMS)
def test_items_come_one_after_another_and_events_are_numbered(name: str) -> None:
    open_index = None
    ended = 0
    for number, event in enumerate(events_of(STREAMS[name])):
        assert event["sequence_number"] == number
        if event["type"] == "response.output_item.added":
            assert open_index is None
            assert event["output_index"] == ended
            open_index = ended
        elif event["type"] == "response.output_item.done":
            assert event["output_index"] == open_index
            ended, open_index = ended + 1, None
        elif "output_index" in event:
            assert event["output_index"] == open_index


def test_the_dialect_is_one_to_the_gateway() -> None:
    served: Dialect = Responses()
    stream: ClientStream = served.stream(call_of())
    assert stream.finish()


def test_a_delta_leaves_with_the_chunk_that_brought_it() -> None:
    stream = dialect().stream(call_of())
    first, second, *_ = chunks(TEXT)
    stream.feed(first)
    assert [event.get("delta") for event in events_of(stream.feed(second))] == [None, None, "Four "]


def test_a_response_can_begin_while_the_engine_is_waited_for() -> None:
    stream = dialect().stream(call_of())
    began = events_of(stream.start())
    assert [event["type"] for event in began] == ["response.created", "response.in_progress"]
    assert stream.start() == b""
    assert events_of(stream.keepalive()) == [{"type": "keepalive"}]
    assert events_of(stream.feed(next(chunks(TEXT)))) == []


def test_a_finished_item_waits_for_the_step_to_be_durable() -> None:
    stream = dialect().stream(call_of(**CODEX))
    call = Turn(calls=(Call("exec_command", '{"cmd": "rm x"}', "c"),), finish_reason="tool_calls")
    before = b"".join(stream.feed(chunk) for chunk in chunks(call))
    assert "response.output_item.done" not in {event["type"] for event in events_of(before)}
    assert [event["type"] for event in events_of(stream.finish())] == [
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


def response_of(call: Any, turn: Turn) -> dict[str, Any]:
    reply: dict[str, Any] = msgspec.json.decode(dialect().reply(call, whole(turn)))
    last = events_of(streamed(call, list(chunks(turn))))[-1]
    assert last["type"] == f"response.{reply['status']}"
    assert last["response"] == reply
    return reply


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_the_status_follows_the_finish_reason(reason: str, status: str, details: object) -> None:
    response = response_of(call_of(), Turn(content="text", finish_reason=reason))
    assert (response["status"], response["incomplete_details"]) == (status, details)
    assert response["output"][0]["status"] == status


def test_codex_gets_a_cut_answer_as_complete_because_incomplete_ends_its_run() -> None:
    response = response_of(call_of(**CODEX), CUT)
    assert response["status"] == response["output"][0]["status"] == "completed"


def test_an_answer_that_the_engine_gave_up_is_failed() -> None:
    response = response_of(call_of(), Turn(content="text", finish_reason="abort"))
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


@pytest.mark.parametrize("content", ["", None])
def test_a_turn_without_any_output_still_leaves_an_item(content: str | None) -> None:
    (item,) = response_of(call_of(), Turn(content=content))["output"]
    assert [part["text"] for part in item["content"]] == [""]


def test_calls_without_an_id_get_one_of_their_own() -> None:
    calls = (Call("exec_command", "{}", ""), Call("exec_command", "{}", ""))
    call = call_of()
    ids = [item["call_id"] for item in response_of(call, Turn(calls=calls))["output"]]
    assert ids == call.seen_ids()
    assert len(set(ids)) == 2
    assert all(len(each) <= 40 and each.startswith("call_") and each[5:].isalnum() for each in ids)


def test_an_id_that_the_engine_repeats_is_replaced_and_one_that_is_new_is_kept() -> None:
    earlier = [
        {"type": "function_call", "call_id": "call_0", "name": "exec_command", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": "done"},
    ]
    calls = tuple(
        Call("exec_command", "{}", each) for each in ("call_0", "call_1", "call_1", "f:0", "call_" + "x" * 36)
    )
    call = call_of(input=earlier)
    ids = [item["call_id"] for item in response_of(call, Turn(calls=calls))["output"]]
    assert ids == call.seen_ids()
    assert ids[1] == "call_1"
    assert len({"call_0", "f:0", "call_" + "x" * 36, *ids}) == 8


def test_a_tool_that_was_not_offered_is_called_by_the_name_that_was_sampled() -> None:
    (item,) = response_of(call_of(), Turn(calls=(Call("rm__all", "", "c"),)))["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "rm__all", "")


def test_engine_fields_do_not_reach_the_client() -> None:
    sent = streamed(call_of(), list(chunks(PARALLEL))) + dialect().reply(call_of(), whole(PARALLEL))
    assert b"token_ids" not in sent
    assert b"chatcmpl" not in sent


def test_usage_may_be_missing() -> None:
    assert response_of(call_of(), Turn(content="text", usage=None))["usage"] is None


def call_chunk(index: int, **function: str) -> EngineObject:
    delta = {"tool_calls": [{"index": index, "function": function}]}
    return engine_object({"choices": [{"index": 0, "delta": delta}]})


@pytest.mark.parametrize(
    "late",
    [
        [call_chunk(0, name="f"), call_chunk(1, name="g"), call_chunk(0, arguments="{}")],
        [call_chunk(0, name="f", arguments="{"), call_chunk(0, name="g")],
        [
            call_chunk(0, name="f", arguments="{"),
            engine_object({"choices": [{"delta": {"content": "text"}}]}),
            call_chunk(0, arguments="}"),
        ],
        [engine_object({"choices": [{"delta": {"content": 7}}]})],
        [engine_object({"choices": [], "usage": {"prompt_tokens": "many"}})],
    ],
)
def test_chunks_that_make_no_sense_are_malformed_rather_than_guessed_at(late: list[EngineObject]) -> None:
    stream = dialect().stream(call_of())
    *begin, last = late
    for chunk in begin:
        stream.feed(chunk)
    with pytest.raises(MalformedReply):
        stream.feed(last)


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (Failure(502, "upstream_error", "boom"), "server_error", "boom"),
        (Failure(503, "unavailable", "full"), "server_error", "full"),
        (
            Failure(429, "busy", "busy.", retry_after="2"),
            "rate_limit_exceeded",
            "busy. Please try again in 2s.",
        ),
        (Failure(400, "x", "This model's maximum context length is 9"), "context_length_exceeded", None),
        (Failure(400, "x", "no such field"), "invalid_prompt", "no such field"),
    ],
)
def test_a_failure_within_a_stream_says_what_clients_act_on(
    failure: Failure, code: str, message: str | None
) -> None:
    stream = dialect().stream(call_of())
    (event,) = events_of(stream.fail(failure))[2:]
    assert event["type"] == "response.failed"
    assert event["response"]["error"] == {"code": code, "message": message or failure.message}


def test_errors_have_openais_shape() -> None:
    failure = Failure.of(InvalidInput("`input` is missing", code="invalid_request", status=400))
    body = msgspec.json.decode(dialect().error(failure))
    assert body["error"]["type"] == "invalid_request_error"


def test_a_call_of_another_dialect_is_a_programming_error() -> None:
    other = ChatCompletions().parse(b'{"messages": [{"role": "user", "content": "x"}]}')
    with pytest.raises(TypeError):
        dialect().stream(other)
