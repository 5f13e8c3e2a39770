"""The judge over a real conversation: it passes as it was, and whatever is changed in it fails."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import anthropic
import msgspec
import openai
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from tests.agents.engine import Engine
from tests.agents.engine_log import read_log
from tests.agents.judging import judge
from tests.agents.task import Task
from tests.agents.wire import Wire
from tests.support.engine.log import EngineLog
from tests.unit.gateway.harness import running_gateway

KEY = "sk-of-one-run"
TASK = Task("/tmp/somewhere/notes.txt", "first → 1", "second ✓ 2")
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
TOOLS = ("write_file", "append_file")
PAUSE_MS = 250


async def messages_run(url):
    """Two turns whose echo has its arguments in another order, as Claude Code has them."""
    asked = {"model": "m", "max_tokens": 4096, "messages": [{"role": "user", "content": TASK.prompt}]}
    tools = [{"name": name, "input_schema": SCHEMA} for name in TOOLS]
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        for _ in range(2):
            async with client.messages.stream(**asked, tools=tools) as events:
                message = await events.get_final_message()
            blocks = [block.to_dict() for block in message.content]
            uses = [block for block in blocks if block["type"] == "tool_use"]
            for use in uses:
                use["input"] = dict(sorted(use["input"].items(), reverse=True))
            results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "done"} for use in uses]
            asked["messages"] += [
                {"role": "assistant", "content": blocks},
                {"role": "user", "content": results},
            ]


async def responses_run(url):
    items = [{"role": "user", "content": TASK.prompt}]
    tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOLS]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        for _ in range(2):
            async with client.responses.stream(model="m", input=items, tools=tools) as events:
                response = await events.get_final_response()
            items += [
                item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output
            ]
            items += [
                {"type": "function_call_output", "call_id": item.call_id, "output": "done"}
                for item in response.output
                if item.type == "function_call"
            ]


async def chat_run(url):
    messages = [{"role": "user", "content": TASK.prompt}]
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        for _ in range(2):
            async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
                message = (await events.get_final_completion()).choices[0].message
            calls = [call.model_dump(include={"id": True, "type": True}) for call in message.tool_calls]
            for call, sampled in zip(calls, message.tool_calls, strict=True):
                call["function"] = {
                    "name": sampled.function.name,
                    "arguments": json.dumps(json.loads(sampled.function.arguments), sort_keys=True),
                }
            messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls]


RUNS = {"messages": messages_run, "responses": responses_run, "chat_completions": chat_run}


@contextlib.asynccontextmanager
async def recorded(run, tmp_path):
    """What came of a run: exchanges on the wire, the engine's log, the steps."""
    log = tmp_path / "engine.jsonl"
    engine = TestServer(Engine(EngineLog(log), reasoning=True, pause_ms=PAUSE_MS).app())
    async with engine, running_gateway(str(engine.make_url("/v1")), keepalive_ms=100) as gateway:
        with Wire(int(gateway.url.rpartition(":")[2])) as wire:
            await gateway.register()
            await run(f"http://127.0.0.1:{wire.port}/t1/p1")
            yield wire.exchanges("/t1/p1/"), read_log(log, KEY), gateway.steps


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversation(request, tmp_path_factory):
    async with recorded(RUNS[request.param], tmp_path_factory.mktemp(request.param)) as came:
        yield came


every_protocol = pytest.mark.parametrize("conversation", RUNS, indirect=True, scope="module")


@every_protocol
def test_a_conversation_as_it_was_passes(conversation):
    verdict = judge(*conversation, streams=True)
    assert not verdict.problems
    assert (verdict.calls, verdict.captured, verdict.prefix_class) == (2, 2, "exact")
    assert verdict.ids_exact
    assert verdict.logprobs_aligned
    assert verdict.expansions_exact
    assert verdict.replies_exact


def without_a_chunk(reply):
    events = reply.split(b"\n\n")
    return b"\n\n".join(event for event in events if b'"\xe2\x9c\x93"' not in event)


REPLY_CHANGES = {
    "another letter": lambda reply: reply.replace("✓".encode(), b"x"),
    "a chunk lost": without_a_chunk,
    "ids of the engine": lambda reply: reply.replace(b"data: {", b'data: {"token_ids":[1],', 1),
    "a logprob": lambda reply: reply.replace(b"data: {", b'data: {"logprobs":[1],', 1),
    "half of it": lambda reply: reply[: len(reply) // 2],
}


@every_protocol
@pytest.mark.parametrize("change", REPLY_CHANGES)
def test_a_reply_that_is_not_what_was_sampled_fails(conversation, change):
    exchanges, served, steps = conversation
    changed = [replace(e, reply=REPLY_CHANGES[change](e.reply)) for e in exchanges]
    assert changed != exchanges
    verdict = judge(changed, served, steps, streams=True)
    assert not verdict.replies_exact
    assert verdict.problems


@every_protocol
def test_a_request_that_is_not_what_was_captured_fails(conversation):
    exchanges, served, steps = conversation
    other = replace(exchanges[1], body=exchanges[1].body.replace(b"done", b"dome"))
    verdict = judge([exchanges[0], other], served, steps, streams=True)
    assert not verdict.expansions_exact
    assert any("is not what the client sent" in problem for problem in verdict.problems)


@pytest.mark.parametrize("conversation", ["messages", "chat_completions"], indirect=True, scope="module")
def test_a_turn_put_back_without_a_word_of_it_fails(conversation):
    exchanges, served, steps = conversation
    assert steps[1].metadata["restored"]
    silent = msgspec.structs.replace(steps[1], metadata={})
    verdict = judge(exchanges, served, [steps[0], silent], streams=True)
    assert not verdict.expansions_exact


@every_protocol
def test_an_answered_call_that_is_not_captured_fails(conversation):
    exchanges, served, steps = conversation
    verdict = judge(exchanges, served, steps[:1], streams=True)
    assert (verdict.calls, verdict.captured) == (2, 1)
    assert verdict.problems


@every_protocol
def test_a_stream_without_keepalives_fails(conversation):
    exchanges, served, steps = conversation
    keepalives = (b": keep-alive\n\n", b'event: keepalive\ndata: {"type":"keepalive"}\n\n')
    keepalives += (b'event: ping\ndata: {"type":"ping"}\n\n',)
    silent = exchanges
    for keepalive in keepalives:
        silent = [replace(e, reply=e.reply.replace(keepalive, b"")) for e in silent]
    assert not judge(exchanges, served, steps, streams=True).problems
    assert judge(silent, served, steps, streams=True).problems


@every_protocol
def test_a_prefix_class_worse_than_the_clients_fails(conversation):
    exchanges, served, steps = conversation
    turned = msgspec.structs.replace(steps[1], started_at_ms=steps[0].started_at_ms - 1)
    verdict = judge(exchanges, served[::-1], [turned, steps[0]], streams=True)
    assert verdict.prefix_class == "broken"
    assert verdict.problems
    assert not judge(
        exchanges, served[::-1], [turned, steps[0]], streams=True, prefix_class="broken"
    ).problems


async def test_an_error_answer_fails(tmp_path):
    async def run(url):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="m", messages=[])

    async with recorded(run, tmp_path) as came:
        assert any("status 400" in problem for problem in judge(*came, streams=False).problems)
