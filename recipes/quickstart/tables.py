"""What the demo prints: groups, one batch, and three questions to ClickHouse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean

from clickhouse_connect.driver.client import Client
from rich.console import Console

from agentworld.contract.events import GroupDecision
from agentworld.platform.reports import print_table
from agentworld.platform.resolved import ResolvedBatch, ResolvedStep
from recipes.quickstart.engine.vocabulary import decode

QUESTIONS: Mapping[str, str] = {
    "Which tasks are hardest?": """
SELECT prompt_id, count() AS rollouts,
       countIf(outcome = 'succeeded') AS succeeded,
       round(avg(reward), 2) AS mean_reward, sum(steps) AS steps
FROM trajectories_final WHERE run_id = {run_id:String}
GROUP BY prompt_id ORDER BY mean_reward, prompt_id LIMIT 5""",
    "How do tokens and latency grow from step to step?": """
SELECT step_index AS step, count() AS steps,
       round(avg(prompt_tokens)) AS prompt, round(avg(response_tokens)) AS sampled,
       round(exp(avg(arrayAvg(logprobs))), 3) AS probability,
       round(quantile(0.5)(latency_ms)) AS p50_ms,
       round(quantile(0.95)(latency_ms)) AS p95_ms
FROM steps_final WHERE run_id = {run_id:String} AND status = 'ok'
GROUP BY step ORDER BY step""",
    "How much of each prompt did the log already hold?": """
SELECT relation, count() AS steps, sum(c.prompt_tokens) AS prompt_tokens,
       sum(c.appended_tokens) AS written_tokens,
       round(100 * (1 - written_tokens / prompt_tokens), 1) AS reused_percent
FROM captures AS c FINAL
INNER JOIN (SELECT step_id, relation FROM steps FINAL
            WHERE run_id = {run_id:String}) AS s USING (step_id)
GROUP BY relation ORDER BY steps DESC""",
}
"""SQL by the question it answers; the parameter is `run_id`."""


def print_groups(decisions: Iterable[GroupDecision], console: Console) -> None:
    """One row per group, and the reasons given."""
    groups = list(decisions)
    rows = [
        (
            group.prompt_id,
            str(group.__struct_config__.tag).removeprefix("group_"),
            f"{len(group.members)}/{group.rollouts}",
            " ".join("–" if m.reward is None else f"{m.reward:g}" for m in group.members),
            sum(m.steps for m in group.members),
            sum(m.response_tokens for m in group.members),
        )
        for group in sorted(groups, key=lambda g: g.prompt_id)
    ]
    columns = ("prompt id", "decision", "rollouts", "rewards", "steps", "sampled tokens")
    print_table("Groups", columns, rows, console=console)
    for reason, count in Counter(group.reason for group in groups).items():
        console.print(f"{count} × {reason}", style="dim", highlight=False)


def print_batch(batch: ResolvedBatch, console: Console) -> None:
    """A batch as a trainer reads it, and one of its steps down to the tokens."""
    event = batch.event
    rows = []
    for group in batch.groups:
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        rows.append(
            (
                group.prompt_id,
                len(group.trajectories),
                sum(len(t.steps) for t in group.trajectories),
                sum(len(s.response_ids) for t in group.trajectories for s in t.steps),
                round(fmean(rewards), 2) if rewards else None,
            )
        )
    title = f"Batch {event.batch_id} (number {event.sequence}, {event.reason})"
    print_table(
        title,
        ("prompt id", "trajectories", "steps", "sampled tokens", "mean reward"),
        rows,
        console=console,
    )
    step = next((s for t in batch.trajectories for s in t.steps if s.trainable), None)
    if step is not None:
        _print_step(step, console)


def _print_step(step: ResolvedStep, console: Console) -> None:
    shown = 10
    console.print(
        f"A step of it: {len(step.prompt_ids)} prompt ids; {len(step.response_ids)} response ids "
        f"{step.response_ids[:shown]} …, log-probabilities "
        f"{[round(value, 4) for value in step.logprobs[:shown]]} …",
        highlight=False,
    )
    console.print(repr(decode(step.response_ids)), style="dim", markup=False, highlight=False)


def print_answers(client: Client, run_id: str, console: Console) -> None:
    """Each question with its SQL and its answer."""
    for question, sql in QUESTIONS.items():
        answer = client.query(sql, parameters={"run_id": run_id})
        console.print()
        console.print(sql.strip(), style="dim", markup=False, highlight=False, soft_wrap=True)
        print_table(question, answer.column_names, answer.result_rows, console=console)
