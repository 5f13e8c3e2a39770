from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai.types.shared import Reasoning
from pydantic import BaseModel

from tests.unit.gateway.dialects.responses.engine_turns import Call, Turn, captured
from tests.unit.gateway.dialects.responses.samples import CODEX, CUSTOM, CUT, PARALLEL, REASONING, TEXT, TOOLS
from tests.unit.gateway.dialects.responses.scripted_server import ScriptedServer, serving

LISTING = Turn(
    reasoning="Two folders, so two calls.",
    content="Listing both.",
    calls=(
        Call("list_files", '{"folder": "src"}', "call_1"),
        Call("list_files", '{"folder":"docs"}', "call_2"),
    ),
    finish_reason="tool_calls",
)
ANSWER = Turn(reasoning="One and one.", content="Two files in all.")


def client_of(server: ScriptedServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.base_url, api_key="sk-test", max_retries=0)


@pytest.fixture
def tools() -> Any:
    return TOOLS


@pytest.mark.parametrize(
    "turn", [TEXT, REASONING, PARALLEL, CUSTOM], ids=["text", "reasoning", "parallel", "custom"]
)
@pytest.mark.parametrize("extra", [{}, {"reasoning": {"summary": "auto"}}, {"extra_body": CODEX}])
async def test_the_sdk_reads_the_same_streamed_and_whole(
    turn: Turn, extra: dict[str, Any], tools: Any
) -> None:
    async with serving(turn, turn, turn) as server, client_of(server) as client:
        request: dict[str, Any] = {"model": "policy", "input": "How many files?", "tools": tools, **extra}
        whole = await client.responses.create(**request)
        events = [event async for event in await client.responses.create(stream=True, **request)]
        async with client.responses.stream(**request) as stream:
            accumulated = await stream.get_final_response()

    assert whole.output_text == (turn.content or "")
    assert events[-1].type == "response.completed"
    final = events[-1].response
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == final.output_text == accumulated.output_text == whole.output_text
    for other in (final, accumulated):
        assert [_bare(item) for item in other.output] == [_bare(item) for item in whole.output]
        assert other.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.total_tokens == 150
    assert [call.messages for call in server.calls[1:]] == [server.calls[0].messages] * 2


def _bare(item: Any) -> dict[str, Any]:
    left_out = ("id", "call_id", "status", "parsed_arguments", "content")
    dumped: dict[str, Any] = item.to_dict()
    return {name: value for name, value in dumped.items() if name not in left_out and value is not None}


async def test_the_sdk_sees_that_an_answer_was_cut() -> None:
    async with serving(CUT, CUT) as server, client_of(server) as client:
        whole = await client.responses.create(model="policy", input="Tell me")
        events = [
            e async for e in await client.responses.create(model="policy", input="Tell me", stream=True)
        ]
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert events[-1].type == "response.incomplete"


async def test_the_sdk_parses_structured_output() -> None:
    class Total(BaseModel):
        total: int

    async with serving(Turn(content='{"total": 5}')) as server, client_of(server) as client:
        parsed = await client.responses.parse(model="policy", input="2 and 3", text_format=Total)
    assert parsed.output_parsed == Total(total=5)
    response_format = msgspec.json.decode(server.calls[0].fields["response_format"])
    assert response_format["json_schema"]["name"] == "Total"


async def test_the_sdk_raises_what_was_refused() -> None:
    async with serving() as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            await client.responses.create(model="policy", input="x", previous_response_id="resp_1")


async def test_the_sdk_sees_a_failure_within_the_stream() -> None:
    async with serving(TEXT, breaks_off=True) as server, client_of(server) as client:
        events = [e async for e in await client.responses.create(model="policy", input="x", stream=True)]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.code == "server_error"


@function_tool
def list_files(folder: str) -> str:
    """List the files of a folder."""
    return f"{folder}/one.txt"


SETTINGS = {
    "plain": ModelSettings(),
    "summaries": ModelSettings(reasoning=Reasoning(summary="auto"), temperature=0.5, max_tokens=100),
    "sealed": ModelSettings(response_include=["reasoning.encrypted_content"], store=False),
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_openai_agents_run_with_tools_and_their_next_prompt_extends_the_last(
    settings: str, *, streamed: bool
) -> None:
    async with serving(LISTING, ANSWER) as server, client_of(server) as client:
        agent = Agent(
            name="lister",
            instructions="Count the files.",
            model=OpenAIResponsesModel("policy", client),
            model_settings=SETTINGS[settings],
            tools=[list_files],
        )
        config = RunConfig(tracing_disabled=True)
        if streamed:
            run = Runner.run_streamed(agent, "How many?", run_config=config)
            deltas = "".join([text async for text in _texts(run.stream_events())])
            assert deltas == "Listing both.Two files in all."
            output = run.final_output
        else:
            output = (await Runner.run(agent, "How many?", run_config=config)).final_output

    assert output == "Two files in all."
    first, second = server.calls
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[len(first.messages)].decode() == captured(LISTING).decode()
    results = [msgspec.json.decode(message) for message in second.messages[len(first.messages) + 1 :]]
    assert [(r["tool_call_id"], r["content"]) for r in results] == [
        ("call_1", "src/one.txt"),
        ("call_2", "docs/one.txt"),
    ]
    assert second.tools == first.tools


async def _texts(events: AsyncIterator[Any]) -> AsyncIterator[str]:
    async for event in events:
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta
