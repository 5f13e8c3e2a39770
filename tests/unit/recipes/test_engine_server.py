"""The demo engine over HTTP: vLLM's reply fields, agreement of both modes, clear errors."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from recipes.quickstart.engine.journal import read_journal
from recipes.quickstart.engine.server import Engine, EngineOptions
from tests.unit.recipes.test_engine_model import CALCULATOR, QUESTION

ASK = {
    "messages": [QUESTION],
    "tools": [CALCULATOR],
    "logprobs": True,
    "top_logprobs": 3,
    "return_token_ids": True,
}


@pytest.fixture
async def engine(tmp_path):
    engines = []

    async def start(**options):
        server = TestServer(Engine(EngineOptions(log=tmp_path / "engine.jsonl", **options)).app())
        await server.start_server()
        session = aiohttp.ClientSession(server.make_url("/"))
        engines.extend((session, server))
        return session

    yield start
    for part in engines:
        await part.close()


async def ask(session, **fields):
    async with session.post("v1/chat/completions", json=ASK | fields) as reply:
        return reply.status, await reply.json()


async def stream(session, **fields):
    async with session.post("v1/chat/completions", json=ASK | fields | {"stream": True}) as reply:
        assert reply.status == 200
        lines = [line async for line in reply.content if line.strip()]
    assert lines[-1] == b"data: [DONE]\n"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


def assemble(chunks, index=0):
    text, calls, ids, logprobs, finish = "", [], [], [], None
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index):
        text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", []):
            if "id" in call:
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
        ids += choice["token_ids"]
        logprobs += (choice["logprobs"] or {"content": []})["content"]
        finish = choice["finish_reason"] or finish
    return text, calls, ids, logprobs, finish


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("temperature", [1.0, 2.0])
async def test_stream_and_plain_reply_agree_for_the_same_seed(engine, seed, temperature):
    session = await engine()
    _, plain = await ask(session, seed=seed, temperature=temperature, max_tokens=120)
    options = {"stream_options": {"include_usage": True}}
    chunks = await stream(session, seed=seed, temperature=temperature, max_tokens=120, **options)
    choice, message = plain["choices"][0], plain["choices"][0]["message"]
    text, calls, ids, logprobs, finish = assemble(chunks)
    assert (text or None) == message["content"]
    called = [c["function"] for c in message.get("tool_calls", [])]
    assert calls == [[function["name"], function["arguments"]] for function in called]
    assert ids == choice["token_ids"]
    assert logprobs == choice["logprobs"]["content"]
    assert finish == choice["finish_reason"]
    assert chunks[0]["prompt_token_ids"] == plain["prompt_token_ids"]
    assert chunks[-1]["usage"] == plain["usage"]


async def test_lengths_of_ids_logprobs_and_usage_agree(engine):
    _, reply = await ask(await engine(), n=3, seed=1)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    for choice in reply["choices"]:
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"])
        assert all(len(token["top_logprobs"]) == 3 for token in choice["logprobs"]["content"])
    assert reply["usage"]["completion_tokens"] == sum(len(c["token_ids"]) for c in reply["choices"])
    assert reply["usage"]["prompt_tokens"] == len(reply["prompt_token_ids"])


async def test_extra_fields_come_only_when_asked_for(engine):
    _, reply = await ask(await engine(), return_token_ids=False, logprobs=False)
    assert "prompt_token_ids" not in reply
    assert "token_ids" not in reply["choices"][0]
    assert reply["choices"][0]["logprobs"] is None


async def test_every_reply_is_in_the_journal_as_it_was_sent(engine, tmp_path):
    session = await engine()
    _, reply = await ask(session, n=2)
    chunks = await stream(session)
    entries = {(entry.id, entry.choice): entry for entry in read_journal(tmp_path / "engine.jsonl")}
    assert len(entries) == 3
    for choice in reply["choices"]:
        entry = entries[reply["id"], choice["index"]]
        assert entry.response_ids == choice["token_ids"]
        assert entry.logprobs == [token["logprob"] for token in choice["logprobs"]["content"]]
        assert entry.prompt_ids == reply["prompt_token_ids"]
    assert entries[chunks[0]["id"], 0].response_ids == assemble(chunks)[2]


async def test_a_client_that_leaves_is_noted_as_aborted(engine, tmp_path):
    session = await engine(token_delay_ms=20)
    async with session.post("v1/chat/completions", json=ASK | {"stream": True}) as reply:
        await reply.content.readline()
        reply.close()
    while not list(read_journal(tmp_path / "engine.jsonl")):
        await asyncio.sleep(0.02)
    (entry,) = read_journal(tmp_path / "engine.jsonl")
    assert entry.finish_reason == "abort"


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "user"}]}, 400, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text parts"),
        ({"model": "other"}, 404, "demo-calculator"),
        ({"temperature": -1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"n": 0}, 400, "n must"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"seed": "x"}, 400, "seed"),
        ({"stop": [3]}, 400, "stop"),
        ({"tools": "calculator"}, 400, "tools"),
        ({"presence_penalty": 1}, 400, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"messages": [{"role": "user", "content": "x" * 40_000}]}, 400, "maximum context length"),
    ],
)
async def test_bad_input_is_refused_with_the_field_named(engine, fields, status, named):
    got, reply = await ask(await engine(), **fields)
    assert got == status
    assert named in reply["error"]["message"]


async def test_a_body_that_is_not_json_is_refused(engine):
    session = await engine()
    async with session.post("v1/chat/completions", data=b'{"messages": [') as reply:
        assert reply.status == 400
        assert "not JSON" in (await reply.json())["error"]["message"]


async def test_fail_every_answers_500_in_turn(engine):
    session = await engine(fail_every=2)
    assert [(await ask(session))[0] for _ in range(4)] == [200, 500, 200, 500]


async def test_models_and_health_answer(engine):
    session = await engine()
    async with session.get("health") as reply:
        assert reply.status == 200
    async with session.get("v1/models") as reply:
        assert (await reply.json())["data"][0]["id"] == "demo-calculator"
