"""openai-agents with the two file tools: URL MODEL stream|plain TASK chat|responses."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from file_tools import MAX_TURNS, append_file, write_file
from openai import AsyncOpenAI

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


async def run(url, model, mode, task, protocol):
    """Run the task to its end; the last words."""
    agent = Agent(
        name="editor",
        instructions="You edit files.",
        model=MODELS[protocol](model, openai_client=AsyncOpenAI(base_url=url, max_retries=0)),
        tools=[function_tool(write_file), function_tool(append_file)],
    )
    if mode == "plain":
        return (await Runner.run(agent, task, max_turns=MAX_TURNS)).final_output
    streamed = Runner.run_streamed(agent, task, max_turns=MAX_TURNS)
    async for _ in streamed.stream_events():
        pass
    return streamed.final_output


print(asyncio.run(run(*sys.argv[1:])))
