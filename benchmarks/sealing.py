"""`python -m benchmarks.sealing`: what sealing one long trajectory costs in CPU and memory."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import msgspec

from agentworld.contract.delta import Leaf, Prompt, expand, leaf_of, shorten
from agentworld.contract.events import StepCaptured, TrajectoryRegistered
from agentworld.platform.reports import print_table, write_report
from benchmarks.state_memory import rollout
from stream_processors.rules import Rules
from stream_processors.trajectories.seal import Moment, seal
from stream_processors.trajectories.state import OpenTrajectory, StoredStep
from stream_processors.trajectories.tree import placed_steps

STEPS, APPENDED, SAMPLED = 300, 150, 76
"""Turns; prompt tokens that each appends; tokens that each samples. 10 million prompt tokens in all."""
ROUNDS = 5


def extending() -> tuple[TrajectoryRegistered, list[StepCaptured]]:
    """Every prompt extends the turn before."""
    registered, *steps = rollout("t", STEPS, APPENDED, SAMPLED)
    assert isinstance(registered, TrajectoryRegistered)
    return registered, [step for step in steps if isinstance(step, StepCaptured)]


def dropping(steps: list[StepCaptured]) -> list[StepCaptured]:
    """A template that renders a sampled turn otherwise in every later prompt."""
    leaves: list[Leaf] = []
    made = []
    whole = expand(steps)
    for turn, step in enumerate(steps):
        ids = list(whole[step.step_id].ids)
        for earlier in range(turn):
            ids[(earlier + 1) * (APPENDED + SAMPLED) - 1] = 7
        prompt = Prompt(ids=ids, messages=whole[step.step_id].messages, tools=None)
        made.append(msgspec.structs.replace(step, prompt=shorten(prompt, leaves[:8])))
        leaves = [leaf_of(made[-1], prompt), *leaves]
    return made


def editing(steps: list[StepCaptured]) -> list[StepCaptured]:
    """A system prompt that changes at every call: no prompt keeps a token of another."""
    whole = expand(steps)
    made = []
    for turn, step in enumerate(steps):
        messages = [b'{"role":"system","content":"call %d"}' % turn, *whole[step.step_id].messages]
        prompt = Prompt(ids=[turn, *whole[step.step_id].ids], messages=messages, tools=None)
        made.append(msgspec.structs.replace(step, prompt=shorten(prompt, [])))
    return made


def measure(what: str, registered: TrajectoryRegistered, steps: list[StepCaptured]) -> dict[str, Any]:
    """Least CPU of several rounds, and the memory that relating the steps takes beside them."""
    stored = {
        step.step_id: StoredStep(offset=0, seen_at_ms=0, value=msgspec.json.encode(step)) for step in steps
    }
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        begun = time.process_time()
        seal(
            OpenTrajectory(trajectory_id="t"),
            registered,
            stored,
            reason="idle_timeout",
            at=Moment(partition=0, event_time_ms=0, log_ms=0),
            rules=Rules(),
        )
        sealed = time.process_time()
        placed_steps(steps)
        best["seal_ms"] = min(best.get("seal_ms", 1e9), 1e3 * (sealed - begun))
        best["tree_ms"] = min(best.get("tree_ms", 1e9), 1e3 * (time.process_time() - sealed))
    tracemalloc.start()
    placed_steps(steps)
    best["tree_mb"] = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return {
        "what": what,
        "steps": len(steps),
        "prompt_tokens": sum(step.prompt.prompt_tokens for step in steps),
        **{name: round(value, 1) for name, value in best.items()},
    }


def main() -> None:
    """Measure, print, report."""
    registered, steps = extending()
    rows = [
        measure("every prompt extends", registered, steps),
        measure("every prompt rewrites the turn before", registered, dropping(steps)),
        measure("every prompt has another system prompt", registered, editing(steps)),
    ]
    columns = ("what", "steps", "prompt_tokens", "seal_ms", "tree_ms", "tree_mb")
    print_table("Sealing one trajectory (CPU)", columns, [[row[name] for name in columns] for row in rows])
    write_report("sealing", {"rows": rows})


if __name__ == "__main__":
    main()
