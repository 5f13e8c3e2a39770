"""Requests as real clients shape them, and what is said about those that cannot be translated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentworld.contract.errors import InvalidInput
from gateway.dialects.messages import Messages
from gateway.engine import engine_body
from tests.unit.gateway.dialects.messages.freeze import translated
from tests.unit.gateway.dialects.messages.samples import GOLDEN, dialect

REQUESTS = sorted((GOLDEN / "requests").glob("*.request.json"))
HI = {"role": "user", "content": "hi"}


def parse(**fields: Any) -> Any:
    return dialect().parse(json.dumps({"model": "m", "max_tokens": 9, "messages": [HI], **fields}).encode())


def messages_of(**fields: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in parse(**fields).messages]


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize("path", REQUESTS, ids=lambda p: p.name.removesuffix(".request.json"))
def test_request_becomes_the_golden_call(path: Path) -> None:
    assert translated(path) == path.with_name(path.name.replace(".request.", ".call.")).read_text()


@pytest.mark.parametrize("path", REQUESTS, ids=lambda p: p.name.removesuffix(".request.json"))
def test_call_is_a_body_for_the_engine(path: Path) -> None:
    body = json.loads(engine_body(dialect().parse(path.read_bytes()), model="served"))
    assert body["model"] == "served"
    assert body["return_token_ids"] is True
    assert not {"system", "stop_sequences", "thinking", "metadata", "output_config"} & body.keys()


def test_string_content_and_one_text_block_are_the_same_message() -> None:
    as_text = parse(messages=[HI], system="Be kind.")
    block = {"type": "text", "cache_control": {"type": "ephemeral"}}
    as_blocks = parse(messages=[user({**block, "text": "hi"})], system=[{**block, "text": "Be kind."}])
    assert as_text.messages == as_blocks.messages


def test_billing_line_is_dropped_from_a_system_string_too() -> None:
    text = "x-anthropic-billing-header: a=1\nYou are an agent."
    assert messages_of(system=text)[0] == {"role": "system", "content": "You are an agent."}
    assert messages_of(system="x-anthropic-billing-header: a=1") == [HI]


def test_inner_system_turn_can_be_given_as_a_user_turn() -> None:
    turns = [HI, {"role": "system", "content": "note"}]
    body = json.dumps({"model": "m", "messages": turns}).encode()
    assert json.loads(Messages(inner_system="user").parse(body).messages[1])["role"] == "user"
    assert json.loads(Messages().parse(body).messages[1])["role"] == "system"


def test_tool_results_come_in_the_order_of_the_calls_and_before_the_rest() -> None:
    calls = [{"type": "tool_use", "id": f"c{i}", "name": "f", "input": {}} for i in range(3)]
    results = [{"type": "tool_result", "tool_use_id": f"c{i}", "content": str(i)} for i in (2, 0, 1)]
    found = messages_of(messages=[HI, assistant(*calls), user({"type": "text", "text": "go"}, *results)])
    assert [m.get("content") for m in found[2:]] == ["0", "1", "2", "go"]


@pytest.mark.parametrize(
    ("content", "is_error", "expected"),
    [
        ("no such file", True, "Error: no such file"),
        ("Error: no such file", True, "Error: no such file"),
        ("<tool_use_error>bad</tool_use_error>", True, "<tool_use_error>bad</tool_use_error>"),
        ("errors: 0", False, "errors: 0"),
        ([], True, "Error"),
        (None, False, ""),
        ([{"type": "tool_reference", "tool_name": "Grep"}], False, "Grep"),
        (
            [
                {
                    "type": "search_result",
                    "title": "T",
                    "source": "s",
                    "content": [{"type": "text", "text": "x"}],
                }
            ],
            False,
            "T\ns\nx",
        ),
    ],
)
def test_tool_result_says_whether_it_failed(content: Any, is_error: bool, expected: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": is_error}
    assert messages_of(messages=[user(result)]) == [
        {"role": "tool", "tool_call_id": "c", "content": expected}
    ]


def test_cut_surrogate_pair_does_not_refuse_the_call() -> None:
    body = rb'{"model":"m","messages":[{"role":"user","content":"\ud83d \ud83d\ude00 \\ud83d C:\\\udc00"}]}'
    assert json.loads(dialect().parse(body).messages[0])["content"] == "\ufffd \U0001f600 \\ud83d C:\\\ufffd"


def test_arguments_do_not_depend_on_json_spacing() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1, 2], "b": "x  y"}}
    turns = [HI, assistant(call), user({"type": "tool_result", "tool_use_id": "c", "content": "ok"})]
    spaced = json.dumps({"model": "m", "messages": turns}, indent=3).encode()
    compact = json.dumps({"model": "m", "messages": turns}, separators=(",", ":")).encode()
    assert dialect().parse(spaced).messages == dialect().parse(compact).messages


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none", "disable_parallel_tool_use": True}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
        ),
    ],
)
def test_tool_choice_in_the_engines_words(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    fields = parse(tools=[{"name": "f", "input_schema": {}}], tool_choice=choice).fields
    found = {
        k: msgspec.json.decode(v) for k, v in fields.items() if k in {"tool_choice", "parallel_tool_calls"}
    }
    assert found == expected


TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0"),
        ({"messages": [HI, {"role": "user", "content": 3}]}, "messages.1.content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [user(TEXT, {"type": "text"})]}, "messages.0.content.1.text"),
        ({"messages": [user(TEXT, {"type": "hologram"})]}, "messages.0.content.1.type"),
        ({"messages": [user({"type": "text", "text": 5})]}, "messages.0.content.0.text"),
        (
            {"messages": [user({"type": "document", "source": {"type": "base64", "data": "JVBERi0="}})]},
            "messages.0.content.0.source",
        ),
        (
            {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f1"}})]},
            "messages.0.content.0.source",
        ),
        ({"messages": [user({"type": "image"})]}, "messages.0.content.0.source"),
        ({"messages": [user({"type": "tool_result", "content": "x"})]}, "messages.0.content.0.tool_use_id"),
        (
            {"messages": [user({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "pdf"}]})]},
            "messages.0.content.0.content.0.type",
        ),
        (
            {"messages": [HI, assistant({"type": "server_tool_use", "id": "s", "name": "web_search"})]},
            "messages.1.content.0.type",
        ),
        ({"messages": [HI, assistant({"type": "tool_use", "name": "f"})]}, "messages.1.content.0.id"),
        (
            {"messages": [HI, assistant({"type": "tool_use", "id": "c", "name": "f", "input": "x"})]},
            "messages.1.content.0.input",
        ),
        ({"system": [{"type": "image"}]}, "system.0.type"),
        ({"system": 4}, "system"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tools": [{"name": "bash", "type": "bash_20250124"}]}, "tools.0.type"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools.0.input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stream": "yes"}, "stream"),
        ({"output_config": {"format": {"type": "grammar"}}}, "output_config.format"),
        ({"mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}]}, "mcp_servers"),
        ({"n": 2}, "n"),
    ],
)
def test_what_cannot_be_translated_is_a_400_that_names_the_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse(**fields)
    assert raised.value.status == 400
    assert str(raised.value).startswith(f"`{named}` ")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}']
)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(InvalidInput) as raised:
        dialect().parse(body)
    assert raised.value.status == 400
