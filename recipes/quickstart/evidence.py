"""Reads what a run left behind: in the log, and in ClickHouse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clickhouse_connect.driver.client import Client

from agentworld.contract.codec import decode
from agentworld.contract.delta import expand
from agentworld.contract.events import GroupDecision, GroupRevised, StepCaptured, TrajectoryRegistered
from agentworld.contract.topics import GROUPS, TRAJECTORY_EVENTS
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings
from recipes.quickstart.engine.journal import Entry, read_journal
from recipes.quickstart.verification import SampleKey, StepTokens


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come through the pipeline, by what ClickHouse holds."""

    trajectories: int
    groups: int
    """Groups with a decision."""
    ready_groups: int
    batched_groups: int

    def complete(self, *, trajectories: int, groups: int, batch_groups: int) -> bool:
        """Whether all has arrived: every group decided, every full batch out."""
        full = self.ready_groups - self.ready_groups % batch_groups
        return self.trajectories >= trajectories and self.groups >= groups and self.batched_groups >= full


def steps_in_log(kafka: KafkaSettings, run_id: str) -> list[StepTokens]:
    """Steps of status `ok` of the run's registered trajectories, each once, prompts expanded.

    Raises `IntegrityError` where a prompt cannot be expanded.
    """
    mine: set[str] = set()
    steps: dict[str, dict[str, StepCaptured]] = defaultdict(dict)
    for record in scan_topic(kafka, TRAJECTORY_EVENTS):
        event = decode(TRAJECTORY_EVENTS, record.value)
        if isinstance(event, TrajectoryRegistered) and event.run_id == run_id:
            mine.add(event.trajectory_id)
        elif isinstance(event, StepCaptured):
            steps[event.trajectory_id][event.step_id] = event
    found = []
    for trajectory_id in sorted(mine & steps.keys()):
        prompts = expand(steps[trajectory_id].values())
        found += [
            StepTokens(
                step_id=step.step_id,
                request_id=step.engine.request_id,
                choice=step.choice_index,
                prompt_ids=prompts[step.step_id].ids,
                response_ids=step.response_ids,
                logprobs=step.response_logprobs,
            )
            for step in steps[trajectory_id].values()
            if step.status == "ok"
        ]
    return found


def decisions_in_log(kafka: KafkaSettings, run_id: str) -> dict[str, GroupDecision]:
    """The newest decision on each of the run's groups, by group id; a revised reward is not one."""
    newest: dict[str, GroupDecision] = {}
    for record in scan_topic(kafka, GROUPS):
        event = decode(GROUPS, record.value)
        if isinstance(event, GroupRevised) or not isinstance(event, GroupDecision) or event.run_id != run_id:
            continue
        known = newest.get(event.group_id)
        if known is None or event.version >= known.version:
            newest[event.group_id] = event
    return newest


def steps_in_clickhouse(client: Client, run_id: str) -> list[StepTokens]:
    """Rows of status `ok`, FINAL."""
    rows = client.query(
        "SELECT step_id, engine_request_id, choice_index, prompt_ids, response_ids, logprobs "
        "FROM steps FINAL WHERE run_id = {run_id:String} AND status = 'ok'",
        parameters={"run_id": run_id},
    ).result_rows
    return [StepTokens(*row) for row in rows]


def progress_in_clickhouse(client: Client, run_id: str) -> Progress:
    """How much of the run has arrived at the end of the pipeline."""
    row = client.query(
        "SELECT (SELECT count() FROM trajectories FINAL WHERE run_id = {run_id:String}), "
        "(SELECT count() FROM groups FINAL WHERE run_id = {run_id:String}), "
        "(SELECT count() FROM groups FINAL WHERE run_id = {run_id:String} AND decision = 'group_ready'), "
        "(SELECT sum(groups) FROM batches FINAL WHERE run_id = {run_id:String})",
        parameters={"run_id": run_id},
    ).first_row
    return Progress(*(int(count) for count in row or (0, 0, 0, 0)))


def journal_of(path: Path) -> Mapping[SampleKey, Entry]:
    """The engine's journal by completion id and choice."""
    return {(entry.id, entry.choice): entry for entry in read_journal(path)}
