"""Whatever is sent, in every protocol: a call that can be asked, placed and captured, or a clear 400."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.contract.errors import InvalidInput
from gateway.canonical import ChatCall
from gateway.dialects import DIALECTS
from gateway.dialects import parsed as checked
from gateway.engines import adapter_of
from gateway.engines.completions import CompletionsAdapter
from gateway.online import named
from gateway.online.said import prefixes

GOOD: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "responses": {"input": "x"},
    "messages": {"messages": [{"role": "user", "content": "x"}]},
    "completions": {"prompt": "x"},
    "generate": {"prompt_ids": [1]},
}
NAMES = [
    *("messages", "input", "prompt", "prompt_ids", "system", "instructions", "tools", "tool_choice", "n"),
    *("stream", "model", "stream_options", "logprobs", "sampling_params", "stop_sequences", "reasoning"),
    *("text", "include", "metadata", "user", "prompt_cache_key", "image_data", "trajectory_uid", "x"),
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='aé😀"\\\n\u2028\ud800', max_size=5)
    | st.sampled_from(["user", "assistant", "function", "auto", "text", "message", "function_call"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "name", "text", "id", "call_id", "arguments", "tool_calls"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def parsed(path: str, body: bytes) -> ChatCall | None:
    try:
        return DIALECTS[path].parse(body)
    except InvalidInput as exc:
        if exc.status != 400:
            raise
        return None


@pytest.mark.parametrize("path", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_object_is_a_call_or_a_clear_error(path: str, changes: dict[str, Any]) -> None:
    call = parsed(path, json.dumps(GOOD[path] | changes).encode())
    if call is None:
        return
    for kind in ("vllm", "sglang", "openai"):
        adapter = adapter_of(kind) if call.is_chat else CompletionsAdapter()
        msgspec.json.decode(adapter.body(call, model="m"))
    msgspec.json.encode(call.sampling)
    named(call.client_ids)
    assert len(prefixes(call.messages)) == len(call.messages)


@pytest.mark.parametrize("path", DIALECTS)
@settings(max_examples=30, deadline=None)
@given(body=st.binary(max_size=100))
def test_any_bytes_are_a_call_or_a_clear_error(path: str, body: bytes) -> None:
    parsed(path, body)


DEEP = "[" * 60_000 + "]" * 60_000
AROUND = (
    "%s",
    '{"type": %s}',
    '[{"type": "text", "role": "user", "text": "x", "content": %s}]',
    '[{"type": "function", "function": {"name": "x", "parameters": %s}}]',
    '[{"type": "tool_use", "id": "a", "name": "b", "input": %s}]',
)


@pytest.mark.parametrize("path", GOOD)
def test_a_body_nested_without_end_is_refused_wherever_it_is(path: str) -> None:
    for name in NAMES:
        for around in AROUND:
            fields = [
                f"{json.dumps(key)}: {json.dumps(value)}" for key, value in GOOD[path].items() if key != name
            ]
            fields.append(f"{json.dumps(name)}: {around % DEEP}")
            with pytest.raises(InvalidInput) as refused:
                checked(DIALECTS[path], ("{" + ", ".join(fields) + "}").encode())
            assert refused.value.status == 400
