"""The scripted engine: what it streams, what it answers whole and what it notes are one and the same."""

import json

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.agents.engine import Engine
from tests.agents.engine_log import Refused, read_log
from tests.agents.task import Task
from tests.support.engine.log import EngineLog

KEY = "sk-of-one-run"
TASK = Task("/tmp/somewhere/notes.txt", "first → 1", "second ✓ 2")
WRITE = {
    "type": "function",
    "function": {
        "name": "Write",
        "parameters": {"properties": {"file_path": {"type": "string"}, "content": {"type": "string"}}},
    },
}
BASH = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}},
}
ASK = {
    "model": "any",
    "messages": [{"role": "user", "content": TASK.prompt}],
    "tools": [WRITE, BASH],
    "logprobs": True,
    "return_token_ids": True,
}


@pytest.fixture
async def engine(tmp_path):
    log = tmp_path / "engine.jsonl"
    app = Engine(EngineLog(log), reasoning=True, pause_ms=0).app()
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(server.make_url("/"), headers=headers) as session,
    ):
        yield session, lambda: read_log(log, KEY)


async def whole(session, **fields):
    async with session.post("v1/chat/completions", json=ASK | fields) as reply:
        return await reply.json()


async def streamed(session, **fields):
    async with session.post("v1/chat/completions", json=ASK | fields | {"stream": True}) as reply:
        lines = [line async for line in reply.content if line.strip()]
    assert lines.pop() == b"data: [DONE]\n"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def gathered(chunks):
    text = {"content": "", "reasoning": "", "arguments": ""}
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        for name in ("content", "reasoning"):
            text[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", []):
            text["arguments"] += call["function"]["arguments"]
    return text


async def test_a_stream_carries_one_id_and_one_logprob_per_chunk_as_noted(engine):
    session, noted_so_far = engine
    opening, *chunks = await streamed(session)
    [noted] = noted_so_far()
    choices = [chunk["choices"][0] for chunk in chunks]
    assert opening["prompt_token_ids"] == noted.prompt_ids
    assert [choice["token_ids"] for choice in choices] == [[token_id] for token_id in noted.response_ids]
    assert [choice["logprobs"]["content"][0]["logprob"] for choice in choices] == noted.logprobs
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["tool_calls"]


async def test_a_whole_reply_says_what_the_stream_says(engine):
    session, noted_so_far = engine
    reply, chunks = await whole(session), await streamed(session)
    noted = noted_so_far()
    message = reply["choices"][0]["message"]
    assert gathered(chunks) == {
        "content": message["content"],
        "reasoning": message["reasoning"],
        "arguments": message["tool_calls"][0]["function"]["arguments"],
    }
    assert noted[0].response_ids == noted[1].response_ids == reply["choices"][0]["token_ids"]


async def test_a_turn_that_comes_back_unchanged_begins_the_next_prompt(engine):
    session, noted_so_far = engine
    message = (await whole(session))["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}
    await whole(session, messages=[*ASK["messages"], message, result])
    first, second = noted_so_far()
    leaf = first.prompt_ids + first.response_ids
    assert second.prompt_ids[: len(leaf)] == leaf


async def test_the_script_writes_then_appends_then_looks_then_ends(engine):
    session, noted_so_far = engine
    messages = list(ASK["messages"])
    for _ in range(4):
        message = (await whole(session, messages=messages))["choices"][0]["message"]
        calls = message.get("tool_calls", [])
        results = [{"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls]
        messages += [message, *results]
    assert [entry.called for entry in noted_so_far()] == [["Write"], ["bash"], ["bash", "bash"], []]


async def test_a_title_call_gets_a_short_text_and_is_no_turn(engine):
    session, noted_so_far = engine
    schema = {"schema": {"properties": {"title": {"type": "string"}}}}
    asked = {"type": "json_schema", "json_schema": schema}
    reply = await whole(session, tools=None, response_format=asked)
    assert json.loads(reply["choices"][0]["message"]["content"]).keys() == {"title"}
    assert [entry.kind for entry in noted_so_far()] == ["side"]


async def test_an_unknown_route_is_refused_and_noted(engine):
    session, noted_so_far = engine
    async with session.post("some/where/v1/responses", json={}) as reply:
        assert reply.status == 404
    assert noted_so_far() == [Refused(caller=KEY, path="POST /some/where/v1/responses", status=404)]


async def test_requests_are_noted_as_they_came_under_the_key_they_came_with(engine):
    session, noted_so_far = engine
    body = '{"messages": [{"role":"user", "content": "h\\u0069"}], "tools":[ ]}'
    other = {"Authorization": "Bearer another"}
    for headers in ({}, other):
        async with session.post("v1/chat/completions", data=body, headers=headers) as reply:
            assert reply.status == 200
    [noted] = noted_so_far()
    assert (noted.messages, noted.tools) == (['{"role":"user", "content": "h\\u0069"}'], "[ ]")
