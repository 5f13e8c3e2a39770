"""Real client libraries through the real gateway: two turns with a tool call, in every protocol."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)

from agentworld.contract.delta import expand
from agentworld.contract.events import raw_json
from tests.unit.gateway.harness import RunningGateway, running_gateway
from tests.unit.gateway.token_engine import TokenEngine, Turn, sampling

SPELT = '{"b": 2,  "a":1}'
"""Arguments as no client writes them."""
CALLS = Turn(
    "Let me add.", "One and two.", (("chatcmpl-tool-1", "add", SPELT), ("chatcmpl-tool-2", "add", SPELT))
)
ANSWER = Turn("It is 3 in both cases.", "Read off.")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TASK = "Add 1 and 2, twice."
STREAMED = pytest.mark.parametrize("stream", [False, True])


def check(gateway: RunningGateway, engine: TokenEngine, protocol: str) -> None:
    """Two steps, token-exact, and the second prompt begins with all of the first step."""
    first, second = gateway.steps
    for step in (first, second):
        assert step.status == "ok"
        assert step.request.protocol == protocol
        assert (step.token_source, step.integrity, step.trainable) == ("engine", [], True)
        assert len(step.response_ids) == len(step.response_logprobs)
    prompts = expand([first, second])
    whole = [*prompts[first.step_id].ids, *first.response_ids]
    assert prompts[second.step_id].ids[: len(whole)] == whole
    assert second.prompt.base_step_id == first.step_id
    assert second.prompt.keep_tokens == len(whole)
    assert second.prompt.keep_messages == len(prompts[first.step_id].messages) + 1
    sampled = json.loads(raw_json(first.message) or b"")
    assert [c["function"]["arguments"] for c in sampled["tool_calls"]] == [SPELT, SPELT]
    assert [m["role"] for m in engine.requests[1]["messages"]][-2:] == ["tool", "tool"]


async def chat_turn(client: openai.AsyncOpenAI, stream: bool, messages: list[Any]) -> dict[str, Any]:
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    if not stream:
        reply = await client.chat.completions.create(model="default", messages=messages, tools=tools)
        return reply.choices[0].message.model_dump(exclude_none=True, exclude={"annotations"})
    async with client.chat.completions.stream(model="default", messages=messages, tools=tools) as events:
        final = await events.get_final_completion()
    message = final.choices[0].message.model_dump(exclude_none=True)
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return {k: v for k, v in message.items() if k in {"role", "content", "tool_calls"}}


@STREAMED
async def test_openai_chat_completions(stream: bool) -> None:
    async with (
        sampling(CALLS, ANSWER) as engine,
        running_gateway(engine.url) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/t1/p1/v1", api_key="k" * 20, max_retries=0) as client,
    ):
        await gateway.register()
        messages: list[Any] = [{"role": "user", "content": TASK}]
        turn = await chat_turn(client, stream, messages)
        assert stream or turn["reasoning_content"] == CALLS.reasoning
        for call in turn["tool_calls"]:
            call["function"]["arguments"] = json.dumps(
                json.loads(call["function"]["arguments"]), sort_keys=True
            )
        messages.append(turn)
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "3"} for c in turn["tool_calls"]]
        final = await chat_turn(client, stream, messages)
        assert final["content"] == ANSWER.content
        check(gateway, engine, "chat_completions")
        assert all(b"k" * 20 not in (r.value or b"") for r in gateway.log.records("trajectory-events"))


@STREAMED
async def test_openai_responses(stream: bool) -> None:
    async with (
        sampling(CALLS, ANSWER) as engine,
        running_gateway(engine.url) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/t1/p1/v1", api_key="none", max_retries=0) as client,
    ):
        await gateway.register()
        items: list[Any] = [{"role": "user", "content": TASK}]
        tools: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]

        async def turn() -> Any:
            if not stream:
                return await client.responses.create(model="default", input=items, tools=tools)
            async with client.responses.stream(model="default", input=items, tools=tools) as events:
                return await events.get_final_response()

        response = await turn()
        for item in response.output:
            items.append(item.model_dump(exclude_none=True, exclude={"parsed_arguments"}))
        calls = [item for item in response.output if item.type == "function_call"]
        items += [{"type": "function_call_output", "call_id": c.call_id, "output": "3"} for c in calls]
        assert (await turn()).output_text == ANSWER.content
        check(gateway, engine, "responses")


@STREAMED
async def test_anthropic_messages(stream: bool) -> None:
    async with (
        sampling(CALLS, ANSWER) as engine,
        running_gateway(engine.url) as gateway,
        anthropic.AsyncAnthropic(
            base_url=f"{gateway.url}/t1/p1", api_key="sk-ant-secret", max_retries=0
        ) as client,
    ):
        await gateway.register()
        messages: list[Any] = [{"role": "user", "content": TASK}]
        tools: Any = [{"name": "add", "input_schema": SCHEMA}]

        async def turn() -> Any:
            fields: dict[str, Any] = {
                "model": "default",
                "max_tokens": 999,
                "messages": messages,
                "tools": tools,
                "system": "Be exact.",
            }
            if not stream:
                return await client.messages.create(**fields)
            async with client.messages.stream(**fields) as events:
                return await events.get_final_message()

        message = await turn()
        content = [block.model_dump(exclude_none=True) for block in message.content]
        messages.append({"role": "assistant", "content": content})
        uses = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": "3"} for use in uses]
        messages.append({"role": "user", "content": results})
        final = await turn()
        assert final.content[-1].text == ANSWER.content
        check(gateway, engine, "messages")
        first, second = gateway.steps
        seen = json.loads(raw_json(first.client_message) or b"")
        assert [c["id"] for c in seen["tool_calls"]] == [use.id for use in uses]
        (told,) = second.metadata["restored"]
        assert (told["index"], told["step_id"]) == (2, first.step_id)
        assert told["client"]["tool_calls"][0]["id"] == uses[0].id
        assert engine.headers[0]["Authorization"] == "Bearer sk-ant-secret"
        assert all(b"sk-ant-secret" not in (r.value or b"") for r in gateway.log.records("trajectory-events"))


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@STREAMED
@pytest.mark.parametrize("protocol", ["responses", "chat_completions"])
async def test_openai_agents(protocol: str, stream: bool) -> None:
    async with (
        sampling(CALLS, ANSWER) as engine,
        running_gateway(engine.url) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/t1/p1/v1", api_key="none", max_retries=0) as client,
    ):
        await gateway.register()
        kind = OpenAIResponsesModel if protocol == "responses" else OpenAIChatCompletionsModel
        model: Model = kind("default", client)
        agent = Agent(name="adder", instructions="Add.", model=model, tools=[add])
        config = RunConfig(tracing_disabled=True)
        if stream:
            run = Runner.run_streamed(agent, TASK, run_config=config)
            async for _ in run.stream_events():
                pass
            assert run.final_output == ANSWER.content
        else:
            assert (await Runner.run(agent, TASK, run_config=config)).final_output == ANSWER.content
        check(gateway, engine, protocol)


async def test_turns_are_left_as_sent_where_restoring_is_off() -> None:
    async with (
        sampling(CALLS, ANSWER) as engine,
        running_gateway(engine.url, restore=False) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/t1/p1/v1", api_key="none", max_retries=0) as client,
    ):
        await gateway.register()
        messages: list[Any] = [{"role": "user", "content": TASK}]
        turn = await chat_turn(client, False, messages)
        turn["tool_calls"][0]["function"]["arguments"] = '{"a":1}'
        messages += [turn, {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "3"}]
        await chat_turn(client, False, messages)
        sent = engine.requests[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]
        assert sent == '{"a":1}'
        assert "restored" not in gateway.steps[1].metadata
