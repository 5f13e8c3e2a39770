"""Turns and a request that golden streams are made of."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.dialects.responses import Responses, ResponsesCall
from gateway.engine import EngineObject
from gateway.failures import Failure
from tests.unit.gateway.dialects.responses.engine_turns import Call, Turn, chunks, in_fives

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "exec_command",
        "description": "Run a command.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"cmd": {"type": "string"}},
            "required": ["cmd"],
            "additionalProperties": False,
        },
    },
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edit files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin" /.+/'},
    },
    {
        "type": "namespace",
        "name": "team",
        "description": "Other agents.",
        "tools": [
            {"type": "function", "name": "ask", "parameters": {"type": "object", "properties": {}}},
            {"type": "custom", "name": "tell"},
        ],
    },
]
CODEX = {"client_metadata": {"thread_id": "t-1", "x-codex-window-id": "t-1:0"}}
SUMMARY = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}

TEXT = Turn(content="Four files, none of them empty.")
REASONING = Turn(reasoning="List them first, then count.", content="There are four.")
PARALLEL = Turn(
    content="Looking at both.",
    calls=(
        Call("exec_command", '{"cmd": "ls -la"}', "call_a"),
        Call("team__ask", '{"who": "reviewer"}', "call_b"),
    ),
    finish_reason="tool_calls",
)
CUSTOM = Turn(
    calls=(Call("apply_patch", '{"input": "*** Begin\\n+ \\"caf\\u00e9\\" \\ud83d\\ude00\\n"}', "call_p"),),
    finish_reason="tool_calls",
)
CUT = Turn(content="It is long and", finish_reason="length")


def minting() -> Callable[[], str]:
    """UUIDv7 strings that count up."""
    numbers = itertools.count(1)
    return lambda: f"019d0000-0000-7000-8000-{next(numbers):012x}"


def dialect() -> Responses:
    return Responses(new_id=minting())


def call_of(**fields: Any) -> ResponsesCall:
    request = {"model": "policy", "stream": True, "input": "How many files?", "tools": TOOLS, **fields}
    return dialect().parse(msgspec.json.encode(request))


def streamed(call: ResponsesCall, parts: list[EngineObject]) -> bytes:
    stream = dialect().stream(call)
    return b"".join([stream.feed(part) for part in parts] + [stream.finish()])


def broken_off(call: ResponsesCall, turn: Turn) -> bytes:
    """The engine is gone after the first text."""
    stream = dialect().stream(call)
    sent = [stream.feed(part) for part in list(chunks(turn))[:3]]
    failure = Failure(502, "upstream_broke_off", "the engine ended its stream before the answer was complete")
    return b"".join([*sent, stream.fail(failure)])


def golden_streams() -> dict[str, bytes]:
    """By file name, what each sample streams."""
    return {
        "text": streamed(call_of(), list(chunks(TEXT))),
        "reasoning_text": streamed(call_of(), list(chunks(REASONING))),
        "reasoning_summary": streamed(call_of(**SUMMARY), list(chunks(REASONING))),
        "parallel_calls": streamed(call_of(**CODEX), list(chunks(PARALLEL))),
        "custom_call": streamed(call_of(**CODEX), list(chunks(CUSTOM, in_fives))),
        "refusal": streamed(call_of(), list(chunks(Turn(refusal="I will not.")))),
        "cut_by_length": streamed(call_of(), list(chunks(CUT))),
        "cut_by_length_for_codex": streamed(call_of(**CODEX), list(chunks(CUT))),
        "engine_gone": broken_off(call_of(), TEXT),
    }


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The data of each event; its `event:` line must agree with it."""
    events = []
    for block in stream.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = msgspec.json.decode(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events
