"""An agent nobody here wrote, through the whole stack: openai-agents, unmodified, n = 4."""

import asyncio
import uuid
from collections import Counter
from contextlib import closing, contextmanager

import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from agentworld.client import AsyncAgentWorld
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batches import BatchReader
from agentworld.platform.reader import KafkaPlaceReader
from agentworld.platform.scan import scan_topic
from infra.local.stack import LocalStack, StackOptions
from recipes.quickstart.calculator import NotArithmetic, calculate
from recipes.quickstart.engine.process import engine_process
from recipes.quickstart.engine.server import MODEL
from recipes.quickstart.evidence import journal_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

QUESTION = "Ava has 12 apples. She buys 7 more. She gives away 5. How many are there now?"
ROLLOUTS = 4


@function_tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression, for example 12*4."""
    try:
        return calculate(expression)
    except NotArithmetic as exc:
        return f"error: {exc}"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    root = tmp_path_factory.mktemp("openai-agents")
    with engine_process(root / "engine.jsonl", log_path=root / "engine.log") as engine:
        stack = LocalStack(
            StackOptions(
                data_dir=root / "data",
                upstream_url=engine.url,
                environment={
                    "AGENTWORLD_PROCESSORS_BATCH_GROUPS": "1",
                    "AGENTWORLD_PROCESSORS_GRACE_MS": "500",
                },
            )
        )
        try:
            stack.start()
            yield stack, engine
        finally:
            stack.stop()


async def rollout(world, run_id, index, *, stream):
    """One rollout; how many model calls the agent had answers to."""
    async with world.trajectory(
        prompt_id="apples", run_id=run_id, rollouts=ROLLOUTS, rollout_index=index
    ) as trajectory:
        client = AsyncOpenAI(base_url=trajectory.base_url, api_key="unused", max_retries=0)
        agent = Agent(
            name="solver",
            instructions="Solve the problem with the calculator.",
            model=OpenAIChatCompletionsModel(model=MODEL, openai_client=client),
            model_settings=ModelSettings(temperature=0.7),
            tools=[calculator],
        )
        config = RunConfig(tracing_disabled=True)
        async with client:
            if stream:
                result = Runner.run_streamed(agent, QUESTION, run_config=config, max_turns=12)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, QUESTION, run_config=config, max_turns=12)
        right = "14" in str(result.final_output)
        await trajectory.complete("succeeded" if right else "failed", reward=float(right))
        return trajectory.trajectory_id, len(result.raw_responses)


@contextmanager
def batch_reader(kafka):
    with closing(KafkaPlaceReader(kafka, TRAJECTORIES, client_id="test")) as places:
        yield BatchReader(places, lambda: scan_topic(kafka, READY_BATCHES))


async def the_batch(reader, run_id):
    while True:
        if batches := await asyncio.to_thread(reader.list, run_id=run_id):
            return batches
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
async def test_openai_agents_rollouts_become_a_token_exact_batch(stack, stream):
    stack, engine = stack
    run_id = f"openai-agents-{uuid.uuid4().hex[:8]}"
    world = AsyncAgentWorld(stack.gateway_url)
    answered = dict(
        await asyncio.gather(*(rollout(world, run_id, index, stream=stream) for index in range(ROLLOUTS)))
    )
    with batch_reader(stack.kafka) as reader:
        (event,) = await the_batch(reader, run_id)
        batch = reader.resolve(event)

    (group,) = batch.groups
    assert group.prompt_id == "apples"
    assert {t.trajectory_id: len(t.steps) for t in group.trajectories} == answered
    assert {t.rollout_index for t in group.trajectories} == set(range(ROLLOUTS))
    assert all(t.reward in {0.0, 1.0} for t in group.trajectories)
    steps = [step for trajectory in group.trajectories for step in trajectory.steps]
    assert len(steps) > ROLLOUTS
    assert all(step.trainable and step.token_source == "engine" and not step.integrity for step in steps)
    assert {step.relation for step in steps} >= {"root", "extends"}
    journal = Counter(
        (tuple(entry.prompt_ids), tuple(entry.response_ids), tuple(entry.logprobs))
        for entry in journal_of(engine.journal).values()
    )
    assert Counter((tuple(s.prompt_ids), tuple(s.response_ids), tuple(s.logprobs)) for s in steps) <= journal
