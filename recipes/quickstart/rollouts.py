"""Runs every task n times through a gateway, scores the answers, and counts what it saw itself."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Literal, Self

import openai

from agentworld.client import AgentWorld
from agentworld.contract.errors import AgentWorldError
from recipes.quickstart.agent import Agent, Attempt, CutShort, TurnLimit
from recipes.quickstart.problems import Problem, make_problems

logger = logging.getLogger(__name__)

Ending = Literal["correct", "wrong", "turn_limit", "crashed", "error"]
"""`crashed`: before its first call; `error`: a call failed for good."""


@dataclass(frozen=True)
class Plan:
    """What to run. The same plan against the same engine samples the same tokens."""

    gateway_url: str
    run_id: str
    model: str = "demo-calculator"
    tasks: int = 16
    rollouts: int = 4
    concurrency: int = 8
    seed: int = 7
    channel: str = "train"
    max_turns: int = 6
    max_tries: int = 5
    crash_rate: float = 0.05
    """Share of rollouts whose workspace fails to start, so that their group holds a zero-step one."""


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """One rollout as its runner saw it."""

    prompt_id: str
    trajectory_id: str
    rollout_index: int
    streamed: bool
    ending: Ending
    reward: float | None
    turns: int
    failed_calls: int
    answered_ids: tuple[str, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All rollouts of a run."""

    run_id: str
    tasks: int
    results: tuple[RolloutResult, ...]
    seconds: float

    @property
    def answered_ids(self) -> list[str]:
        """Completion id of every call an agent had a whole answer to."""
        return [completion_id for result in self.results for completion_id in result.answered_ids]

    def count(self, ending: Ending) -> int:
        """Rollouts that ended so."""
        return sum(result.ending == ending for result in self.results)

    def figures(self) -> dict[str, Any]:
        """The summary for a report."""
        endings: tuple[Ending, ...] = ("correct", "wrong", "turn_limit", "crashed", "error")
        return {
            "run_id": self.run_id,
            "tasks": self.tasks,
            "rollouts": len(self.results),
            "endings": {ending: self.count(ending) for ending in endings},
            "answered_calls": len(self.answered_ids),
            "failed_calls": sum(result.failed_calls for result in self.results),
            "seconds": round(self.seconds, 2),
            "results": [asdict(result) for result in self.results],
        }


class WorkspaceFailed(Exception):
    """The rollout's environment did not start."""


def run(plan: Plan, *, on_result: Callable[[RolloutResult], None] = lambda _: None) -> RunSummary:
    """Run all rollouts, `plan.concurrency` at a time. A rollout that fails is a result, not an error."""
    began = time.monotonic()
    jobs = [
        (problem, index) for problem in make_problems(plan.seed, plan.tasks) for index in range(plan.rollouts)
    ]

    def one(job: tuple[Problem, int]) -> RolloutResult:
        result = runner.rollout(*job)
        on_result(result)
        return result

    with Runner(plan) as runner, ThreadPoolExecutor(plan.concurrency, thread_name_prefix="rollout") as pool:
        results = tuple(pool.map(one, jobs))
    return RunSummary(plan.run_id, plan.tasks, results, time.monotonic() - began)


class Runner:
    """Runs single rollouts of a plan, from any thread."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._world = AgentWorld(plan.gateway_url)
        self._client = openai.OpenAI(base_url=plan.gateway_url, api_key="unused", max_retries=0, timeout=60)

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.__exit__(kind, error, trace)

    def rollout(self, problem: Problem, index: int, *, replaces: str | None = None) -> RolloutResult:
        """One rollout, in the place of the lost trajectory `replaces`. One that fails is a result, too."""
        return _rollout(self._plan, self._world, self._client, problem, index, replaces)


def _start_workspace(rng: random.Random, crash_rate: float) -> None:
    if rng.random() < crash_rate:
        raise WorkspaceFailed("the rollout's workspace did not start")


def _score(agent: Agent, problem: Problem, attempt: Attempt, *, seed: int) -> tuple[Ending, float, str]:
    try:
        agent.solve(problem, attempt, seed=seed)
    except TurnLimit as exc:
        return "turn_limit", 0.0, str(exc)
    if attempt.answer is not None and float(attempt.answer) == problem.answer:
        return "correct", 1.0, ""
    return "wrong", 0.0, f"answered {attempt.answer}, not {problem.answer}"


def _rollout(
    plan: Plan,
    world: AgentWorld,
    client: openai.OpenAI,
    problem: Problem,
    index: int,
    replaces: str | None,
) -> RolloutResult:
    rng = random.Random(f"{plan.seed}/{problem.prompt_id}/{index}")
    attempt, streamed = Attempt(), rng.random() < 0.5
    trajectory = world.trajectory(
        prompt_id=problem.prompt_id,
        run_id=plan.run_id,
        channel=plan.channel,
        rollouts=plan.rollouts,
        rollout_index=index,
        replaces=replaces,
        metadata={"data_source": "quickstart", "answer": problem.answer},
    )
    ending: Ending
    reward: float | None = None
    try:
        with trajectory as t:
            _start_workspace(rng, plan.crash_rate)
            agent = Agent(
                client.with_options(base_url=t.base_url),
                plan.model,
                streamed,
                max_turns=plan.max_turns,
                max_tries=plan.max_tries,
            )
            ending, reward, detail = _score(agent, problem, attempt, seed=rng.getrandbits(48))
            t.complete("succeeded" if reward else "failed", reward=reward, reason=detail)
    except WorkspaceFailed as exc:
        ending, detail = "crashed", str(exc)
    except (openai.OpenAIError, CutShort, AgentWorldError) as exc:
        logger.warning("rollout %s/%d failed: %s", problem.prompt_id, index, exc)
        ending, reward, detail = "error", None, f"{type(exc).__name__}: {exc}"
    return RolloutResult(
        prompt_id=problem.prompt_id,
        trajectory_id=getattr(trajectory, "trajectory_id", ""),
        rollout_index=index,
        streamed=streamed,
        ending=ending,
        reward=reward,
        turns=attempt.turns,
        failed_calls=attempt.failed_calls,
        answered_ids=tuple(attempt.answered_ids),
        detail=detail,
    )
