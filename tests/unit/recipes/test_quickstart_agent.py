"""The recipe: problems the model can read, a calculator that evaluates nothing else, an honest agent."""

import asyncio

import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from recipes.quickstart.agent import Agent, Attempt, TurnLimit
from recipes.quickstart.calculator import NotArithmetic, calculate
from recipes.quickstart.engine.journal import read_journal
from recipes.quickstart.engine.reading import read_problem
from recipes.quickstart.engine.server import Engine, EngineOptions
from recipes.quickstart.problems import Problem, make_problems


@pytest.fixture
async def serve():
    servers = []

    async def start(app):
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("/v1"))

    yield start
    for server in servers:
        await server.close()


def solve_all(url, problems, rollouts, **options):
    outcomes = []
    with openai.OpenAI(base_url=url, api_key="x", max_retries=0) as client:
        for problem in problems:
            for index in range(rollouts):
                attempt = Attempt()
                agent = Agent(client, "demo-calculator", stream=index % 2 == 0, pause_s=0.01, **options)
                try:
                    agent.solve(problem, attempt, seed=index)
                    outcomes.append((attempt, attempt.answer == str(problem.answer)))
                except TurnLimit:
                    outcomes.append((attempt, False))
    return outcomes


def test_every_problem_can_be_read_back_from_its_words():
    for seed in range(30):
        for problem in make_problems(seed, 16):
            read = read_problem(problem.question)
            value = read.start
            for step in read.operations:
                value = calculate(f"{value}{step.operator}{step.operand}")
            assert value == str(problem.answer), problem.question


def test_the_same_seed_makes_the_same_problems():
    assert make_problems(5, 16) == make_problems(5, 16)
    assert make_problems(5, 16) != make_problems(6, 16)
    assert len({problem.prompt_id for problem in make_problems(5, 16)}) == 16


@pytest.mark.parametrize(
    ("expression", "value"),
    [("2+3*4", "14"), ("(2+3)*-4", "-20"), ("7/2", "3.5"), (" 0.1+0.2 ", "0.3"), ("1/3", "0.333333")],
)
def test_calculator_is_exact(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1/0",
        "2**9",
        "__import__('os')",
        "a+1",
        "1+",
        "(" * 99,
        "9" * 300,
        "True",
        "1j",
        "[1]",
        "1e99*1e99",
    ],
)
def test_calculator_refuses_everything_but_arithmetic(expression):
    with pytest.raises(NotArithmetic):
        calculate(expression)


async def test_most_rollouts_succeed_and_some_fail(serve):
    url = await serve(Engine(EngineOptions()).app())
    outcomes = await asyncio.to_thread(solve_all, url, make_problems(1, 10), 4)
    correct = sum(right for _, right in outcomes)
    assert 22 <= correct <= 36


async def test_the_agent_counts_exactly_the_calls_that_were_answered(serve, tmp_path):
    log = tmp_path / "engine.jsonl"
    url = await serve(Engine(EngineOptions(log=log, fail_every=3)).app())
    outcomes = await asyncio.to_thread(solve_all, url, make_problems(2, 3), 2)
    answered = [completion for attempt, _ in outcomes for completion in attempt.answered_ids]
    assert sorted(answered) == sorted(entry.id for entry in read_journal(log))
    assert sum(attempt.failed_calls for attempt, _ in outcomes) > 0


async def test_a_refused_call_is_not_repeated(serve):
    url = await serve(Engine(EngineOptions(max_model_tokens=10)).app())
    with pytest.raises(openai.BadRequestError):
        await asyncio.to_thread(solve_all, url, make_problems(2, 1), 1)


async def test_a_call_that_keeps_failing_ends_the_rollout(serve):
    url = await serve(Engine(EngineOptions(fail_every=1)).app())
    with pytest.raises(openai.InternalServerError):
        await asyncio.to_thread(solve_all, url, make_problems(2, 1), 1, max_tries=3)


async def test_a_stream_cut_short_is_a_failed_call(serve):
    async def cut(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"id":"x","object":"chat.completion.chunk","choices":[]}\n\n')
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", cut)
    url = await serve(app)

    def solve():
        with openai.OpenAI(base_url=url, api_key="x", max_retries=0) as client:
            attempt = Attempt()
            agent = Agent(client, "demo-calculator", stream=True, pause_s=0.01, max_tries=2)
            with pytest.raises(Exception, match="finish_reason"):
                agent.solve(Problem("p", "What is 1+1?", 2), attempt, seed=0)
            return attempt

    attempt = await asyncio.to_thread(solve)
    assert attempt.answered_ids == []
    assert attempt.failed_calls == 1
