"""One client's run, and its row of the report."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentworld.contract.events import StepCaptured
from tests.agents.clients import Client
from tests.agents.clients.base import Order
from tests.agents.engine_log import Refused, Served, read_log
from tests.agents.judging import dialect_of, judge
from tests.agents.running import Limit, run_client
from tests.agents.stack import Stack
from tests.agents.task import Task

_MIN_TURNS = 3
"""Two turns that call tools, and the last words."""
_SETTLE_S = 30.0
_SETTLE_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Row:
    """One client's result, as it stands in the report."""

    client: str
    protocol: str
    stream: bool
    calls: int
    captured: int | None
    ids_exact: bool | None
    logprobs_aligned: bool | None
    prefix_class: str | None
    prefix_kept: float | None
    expansions_exact: bool | None
    replies_exact: bool | None
    passed: bool
    problems: Sequence[str]
    seconds: float


def run_row(client: Client, stack: Stack, directory: Path, *, limit: Limit, direct: bool) -> Row:
    """Run one client and judge what became of it. Other clients may run beside it."""
    workdir, home = directory / "work", directory / "home"
    workdir.mkdir(parents=True)
    home.mkdir()
    mark = uuid.uuid4().hex[:8]
    task = Task(path=str(workdir / "notes.txt"), first=f"first → {mark}", second=f"second ✓ {mark}")
    trajectory_id, url = stack.register(prompt_id=f"{client.name}-{mark}")
    order = Order(url=url, key=f"sk-agent-tests-{mark}", task=task, workdir=workdir, home=home)
    ended = run_client(client, order, log=directory / "client.log", limit=limit)
    steps = () if direct else _settled(stack, order, trajectory_id)
    entries = read_log(stack.engine_log, order.key)
    served = [entry for entry in entries if isinstance(entry, Served)]
    problems = [f"asked for {entry.path}" for entry in entries if isinstance(entry, Refused)]
    problems += [ended.problem] if ended.problem else []
    if not task.done():
        problems.append("the file does not hold what was scripted")
    turns = [reply for reply in served if reply.kind == "turn"]
    if len(turns) < _MIN_TURNS:
        problems.append(f"{len(turns)} turns of the main conversation, {_MIN_TURNS} or more expected")
    if len([reply for reply in turns if reply.called]) < _MIN_TURNS - 1:
        problems.append("fewer than two turns called tools")
    verdict = None
    if not direct:
        verdict = judge(
            stack.exchanges(url), served, steps, streams=client.stream, prefix_class=client.prefix_class
        )
        problems += verdict.problems
        if any(step.request.stream != client.stream for step in steps):
            problems.append(f"a call was {'not ' if client.stream else ''}streamed")
    return Row(
        client=client.name,
        protocol=client.protocol,
        stream=client.stream,
        calls=verdict.calls if verdict else len(served),
        captured=verdict.captured if verdict else None,
        ids_exact=verdict.ids_exact if verdict else None,
        logprobs_aligned=verdict.logprobs_aligned if verdict else None,
        prefix_class=verdict.prefix_class if verdict else None,
        prefix_kept=round(verdict.prefix_kept, 3) if verdict and verdict.prefix_kept is not None else None,
        expansions_exact=verdict.expansions_exact if verdict else None,
        replies_exact=verdict.replies_exact if verdict else None,
        passed=not problems,
        problems=problems,
        seconds=round(ended.seconds, 1),
    )


def _settled(stack: Stack, order: Order, trajectory_id: str) -> Sequence[StepCaptured]:
    """The steps, once all that the engine served is among them.

    A call that the client left at its end is captured a moment after the client is gone.
    """
    deadline = time.monotonic() + _SETTLE_S
    while True:
        talking = stack.talking(order.url)
        asked = [e for e in stack.exchanges(order.url) if dialect_of(e) and not e.refused]
        served = {entry.id for entry in read_log(stack.engine_log, order.key) if isinstance(entry, Served)}
        steps = stack.captured(trajectory_id)
        missing = served - {step.engine.request_id for step in steps}
        settled = not talking and not missing and len(steps) >= len(asked)
        if settled or time.monotonic() > deadline:
            return steps
        time.sleep(_SETTLE_POLL_S)
