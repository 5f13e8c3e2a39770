"""The real Anthropic SDK reads what this dialect writes, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentworld.contract.errors import InvalidInput
from gateway.dialects.messages import PING, count_reply, estimate
from gateway.engine import EngineObject
from gateway.failures import Failure
from tests.unit.gateway.dialects.messages.answers import Sampled
from tests.unit.gateway.dialects.messages.freeze import BROKEN_OFF
from tests.unit.gateway.dialects.messages.samples import GOLDEN, dialect

TOOL: Any = {"name": "Bash", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}
HI: Any = [{"role": "user", "content": "hi"}]
SAMPLED = Sampled(
    "Look first.", "\nLooking.", [("Bash", '{"command": "ls"}'), ("Read", '{"file_path": "/a"}')]
)


def chunks_of(name: str) -> list[EngineObject]:
    lines = Path(GOLDEN / "streams" / f"{name}.chunks.jsonl").read_bytes().splitlines()
    return [EngineObject.parse(line) for line in lines]


async def answer(request: web.Request) -> web.StreamResponse:
    """Serves a golden stream, named by the model; or the whole sampled answer."""
    messages = dialect()
    try:
        call = messages.parse(await request.read())
    except InvalidInput as exc:
        failure = Failure.of(exc)
        return web.Response(
            status=failure.status, body=messages.error(failure), content_type="application/json"
        )
    if request.path.endswith("count_tokens"):
        body = count_reply(estimate(call), estimated=True)
        return web.Response(body=body, content_type="application/json")
    if not call.stream:
        reply = messages.reply(call, EngineObject.parse(json.dumps(SAMPLED.reply()).encode()))
        return web.Response(body=reply, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    stream = messages.stream(call)
    await response.write(PING)
    for chunk in chunks_of(call.model):
        await response.write(stream.feed(chunk) + stream.keepalive())
    await response.write(stream.fail(BROKEN_OFF) if call.model == "broken_off" else stream.finish())
    return response


@pytest.fixture
async def client() -> AsyncIterator[anthropic.AsyncAnthropic]:
    app = web.Application()
    app.router.add_post("/t1/p1/v1/messages", answer)
    app.router.add_post("/t1/p1/v1/messages/count_tokens", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/t1/p1"))
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as sdk:
            yield sdk


async def final(
    client: anthropic.AsyncAnthropic, model: str, **fields: Any
) -> anthropic.types.ParsedMessage[None]:
    async with client.messages.stream(
        model=model, max_tokens=99, messages=HI, tools=[TOOL], **fields
    ) as stream:
        return await stream.get_final_message()


async def test_sdk_reads_a_whole_reply(client: anthropic.AsyncAnthropic) -> None:
    message = await client.messages.create(model="m", max_tokens=99, messages=HI, tools=[TOOL])
    thinking, text, bash, read = message.content
    assert thinking.type == "thinking"
    assert (thinking.thinking, bool(thinking.signature)) == ("Look first.", True)
    assert text.type == "text"
    assert text.text == "\nLooking."
    assert bash.type == read.type == "tool_use"
    assert (bash.name, bash.input, read.input) == ("Bash", {"command": "ls"}, {"file_path": "/a"})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (2, 5)


async def test_sdk_puts_a_stream_together(client: anthropic.AsyncAnthropic) -> None:
    message = await final(client, "parallel_tools")
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [(c.name, c.input) for c in calls] == [
        ("Bash", {"command": "ls"}),
        ("Read", {"file_path": "/repo/a.txt"}),
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 20)


@pytest.mark.parametrize(
    ("model", "reason", "text"),
    [
        ("text", "end_turn", "Hello you"),
        ("thinking_then_text", "end_turn", "\n\nFour"),
        ("stop_sequence", "stop_sequence", "One"),
        ("max_tokens_within_a_call", "max_tokens", ""),
        ("tool_without_arguments", "tool_use", ""),
        ("nothing_to_show", "end_turn", ""),
    ],
)
async def test_sdk_sees_why_the_answer_ended(
    client: anthropic.AsyncAnthropic, model: str, reason: str, text: str
) -> None:
    message = await final(client, model, stop_sequences=["END"])
    assert message.stop_reason == reason
    assert "".join(b.text for b in message.content if b.type == "text") == text
    assert message.stop_sequence == ("END" if reason == "stop_sequence" else None)


async def test_sdk_raises_on_an_error_within_the_stream(client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="broke off"):
        await final(client, "broken_off")


async def test_sdk_raises_bad_request_with_the_named_field(client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"tool_choice\.name"):
        await client.messages.create(
            model="m", max_tokens=9, messages=HI, tools=[TOOL], tool_choice={"type": "tool", "name": "g"}
        )


async def test_sdk_counts_tokens(client: anthropic.AsyncAnthropic) -> None:
    count = await client.messages.count_tokens(model="m", messages=HI, tools=[TOOL])
    assert count.input_tokens > 10
    assert count.model_extra == {"estimated": True}
