from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentworld.contract.errors import InvalidInput
from gateway.dialects.responses import Responses, ToolOrigin
from gateway.engine import engine_body
from tests.unit.gateway.dialects.responses.freeze import GOLDEN, chat_of
from tests.unit.gateway.dialects.responses.samples import CODEX, TOOLS, call_of, dialect

REQUESTS = sorted((GOLDEN / "requests").glob("*.request.json"))


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.name.split(".")[0])
def test_requests_of_real_clients_translate_as_frozen(path: Path) -> None:
    expected = path.with_name(path.name.replace(".request.", ".chat.")).read_bytes()
    assert chat_of(path.read_bytes()).decode() == expected.decode()


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.name.split(".")[0])
def test_messages_and_tools_are_those_that_the_engine_gets(path: Path) -> None:
    call = dialect().parse(path.read_bytes())
    body = msgspec.json.decode(engine_body(call, model="served"))
    assert body["messages"] == [msgspec.json.decode(message) for message in call.messages]
    assert body.get("tools") == (None if call.tools is None else msgspec.json.decode(call.tools))
    assert body["model"] == "served"
    assert body["stream"] is call.stream


def parse(**fields: Any) -> None:
    Responses().parse(msgspec.json.encode({"model": "policy", "input": "hello", **fields}))


MESSAGE = {"type": "message", "role": "user", "content": "hello"}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("`input` is missing", {"input": None}),
    ("`input` is empty", {"input": []}),
    ("`input`: expected `str | array`", {"input": 7}),
    (
        "`input[1]` refers to an item kept by a server",
        {"input": [MESSAGE, {"type": "item_reference", "id": "m"}]},
    ),
    ("`input[0]` refers to an item kept by a server", {"input": [{"id": "msg_1"}]}),
    ("`input[0].type` is 'web_search_call'", {"input": [{"type": "web_search_call", "action": {}}]}),
    (
        "`input[0].type` is 'computer_call_output'",
        {"input": [{"type": "computer_call_output", "output": {}}]},
    ),
    ("`input[0].content[0].text`: expected", {"input": [{**MESSAGE, "content": [{"text": 1}]}]}),
    ("`input[0].content[0].text` is missing", {"input": [{**MESSAGE, "content": [{"type": "input_text"}]}]}),
    ("`input[0].content` is missing", {"input": [{"role": "user"}]}),
    ("`input[0].role` must be", {"input": [{**MESSAGE, "role": "critic"}]}),
    (
        "`input[0].content[0].type` is 'input_file'",
        {"input": [{**MESSAGE, "content": [{"type": "input_file"}]}]},
    ),
    (
        "`input[0].content[0].image_url` is missing",
        {"input": [{**MESSAGE, "content": [{"type": "input_image", "file_id": "f"}]}]},
    ),
    (
        "`input[0].content`: instructions must be text alone",
        {"input": [{"role": "developer", "content": [{"type": "input_image", "image_url": "x"}]}]},
    ),
    (
        "`input[1].content[0][0].type` is 'input_image'",
        {"input": [MESSAGE, {"role": "assistant", "content": [{"type": "input_image"}]}]},
    ),
    ("`input[0].arguments` is missing", {"input": [{"type": "function_call", "name": "f", "call_id": "c"}]}),
    ("`input[0].name` is missing", {"input": [{"type": "function_call", "arguments": "", "call_id": "c"}]}),
    ("`input[0].input` is missing", {"input": [{"type": "custom_tool_call", "name": "f", "call_id": "c"}]}),
    ("`input[0].call_id` is missing", {"input": [{"type": "function_call_output", "output": "x"}]}),
    ("`input[0].output` is missing", {"input": [{"type": "function_call_output", "call_id": "c"}]}),
    ("`input[0].action` must be", {"input": [{"type": "local_shell_call", "call_id": "c"}]}),
    (
        "`input[0].encrypted_content` was changed",
        {"input": [{"type": "reasoning", "encrypted_content": "agentworld-reasoning-1:%"}]},
    ),
    ("`previous_response_id`", {"previous_response_id": "resp_1"}),
    ("`conversation`", {"conversation": {"id": "c"}}),
    ("`prompt`", {"prompt": {"id": "p"}}),
    ("`background`", {"background": True}),
    ("`n` must be 1", {"n": 2}),
    ("`include`", {"include": ["message.output_text.logprobs"]}),
    ("`stream`: expected `bool`", {"stream": "yes"}),
    ("`instructions`: expected `str`", {"instructions": ["a"]}),
    ("`max_output_tokens`: expected `int`", {"max_output_tokens": "many"}),
    ("`text.format.type` must be", {"text": {"format": {"type": "xml"}}}),
    ("`text.format.schema` is missing", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
    ("`tools[0].name` is missing", {"tools": [{"type": "function", "function": {"name": "chat_style"}}]}),
    (
        "`tools[1].name`: the engine would know two tools",
        {"tools": [TOOLS[0], {**TOOLS[1], "name": "exec_command"}]},
    ),
    (
        "`tools[0].tools[0].name` is missing",
        {"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "custom"}]}]},
    ),
    ("`tools[0].strict`: expected", {"tools": [{"type": "function", "name": "f", "strict": "no"}]}),
    ("`tool_choice` must be", {"tools": TOOLS, "tool_choice": "maybe"}),
    ("`tool_choice` is required, but", {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
    (
        "`tool_choice.name`: 'nope' is not among",
        {"tools": TOOLS, "tool_choice": {"type": "function", "name": "nope"}},
    ),
    ("`tool_choice.type` is 'file_search'", {"tools": TOOLS, "tool_choice": {"type": "file_search"}}),
]


@pytest.mark.parametrize(("message", "fields"), REFUSED, ids=[message for message, _ in REFUSED])
def test_what_cannot_be_translated_is_refused_by_the_name_of_the_field(
    message: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(**fields)
    assert message in str(refused.value)
    assert refused.value.status == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"text"', b'{"input": "\xff"}'])
def test_a_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        Responses().parse(body)


def test_a_tool_can_be_chosen_by_the_name_that_the_client_gave_it() -> None:
    choice = {"type": "function", "name": "ask", "namespace": "team"}
    body = msgspec.json.decode(engine_body(call_of(tool_choice=choice), model="m"))
    assert body["tool_choice"] == {"type": "function", "function": {"name": "team__ask"}}


def test_tools_keep_their_way_back() -> None:
    assert call_of().tool_origins == {
        "exec_command": ToolOrigin("exec_command"),
        "apply_patch": ToolOrigin("apply_patch", kind="custom"),
        "team__ask": ToolOrigin("ask", "team"),
        "team__tell": ToolOrigin("tell", "team", "custom"),
    }


def test_conversation_ids_are_found_in_the_body() -> None:
    metadata = {
        "thread_id": "t-2",
        "session_id": "t-1",
        "x-codex-window-id": "t-2:3",
        "x-codex-turn-metadata": '{"request_kind":"compaction"}',
    }
    call = call_of(prompt_cache_key="t-1", user="u", client_metadata=metadata)
    assert call.client_ids == {
        "prompt_cache_key": "t-1",
        "user": "u",
        "thread-id": "t-2",
        "session-id": "t-1",
        "x-codex-window-id": "t-2:3",
        "request_kind": "compaction",
    }


@pytest.mark.parametrize("metadata", [None, 7, [], {"thread_id": 1}, {"x-codex-turn-metadata": "not json"}])
def test_odd_metadata_is_no_reason_to_refuse(metadata: object) -> None:
    assert call_of(client_metadata=metadata).client_ids == {}


def test_parameters_are_captured_as_sent_and_unknown_ones_do_not_reach_the_engine() -> None:
    call = call_of(
        temperature=0.5, vendor_flag=True, min_p=0.1, stream_options={"include_obfuscation": False}
    )
    assert call.sampling == {"temperature": 0.5, "vendor_flag": True, "min_p": 0.1}
    body = msgspec.json.decode(engine_body(call, model="m"))
    assert body["temperature"] == 0.5
    assert body["min_p"] == 0.1
    assert "vendor_flag" not in body
    assert body["stream_options"] == {"include_usage": True}


def test_inner_system_can_take_the_role_that_a_template_accepts() -> None:
    items = [MESSAGE, {"type": "message", "role": "developer", "content": "Resumed."}]
    body = msgspec.json.encode({"input": items})
    roles = [
        [msgspec.json.decode(message)["role"] for message in each.parse(body).messages]
        for each in (Responses(), Responses(inner_system="user"))
    ]
    assert roles == [["user", "system"], ["user", "user"]]


def test_codex_is_known_by_its_metadata() -> None:
    assert call_of(**CODEX).never_incomplete
    assert not call_of(client_metadata={"thread_id": "t"}).never_incomplete
