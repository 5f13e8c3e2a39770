"""What the sink keeps of batches and trajectories, for when the log no longer holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from agentworld.contract.codec import decode
from agentworld.contract.delta import ids_digest
from agentworld.contract.errors import IntegrityError, Unavailable
from agentworld.contract.events import BatchReady, Branch, GroupMember, TrainedBranch
from agentworld.contract.topics import READY_BATCHES
from agentworld.platform.resolved import PROMPT_UNRESOLVED, ResolvedStep, ResolvedTrajectory, check
from agentworld.platform.trained import trained_step_ids

_BATCH = "SELECT event FROM batches FINAL WHERE batch_id = {batch_id:String} LIMIT 1"
_BATCHES = (
    "SELECT event FROM batches FINAL WHERE ({run_id:String} = '' OR run_id = {run_id:String}) "
    "AND ({channel:String} = '' OR channel = {channel:String}) ORDER BY run_id, channel, sequence"
)
_TRAJECTORY = (
    "SELECT * FROM trajectories FINAL WHERE trajectory_id = {trajectory_id:String} "
    "ORDER BY row_version DESC LIMIT 1"
)
_STEPS = (
    "SELECT * FROM steps FINAL WHERE run_id = {run_id:String} AND group_id = {group_id:String} "
    "AND trajectory_id = {trajectory_id:String} ORDER BY step_index"
)


class BatchArchive:
    """Reads the sink's tables. Every method raises `Unavailable` when ClickHouse does not answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def batch(self, batch_id: str) -> BatchReady | None:
        """The event of that id, if the sink has stored it."""
        rows = self._rows(_BATCH, {"batch_id": batch_id})
        return decode(READY_BATCHES, rows[0]["event"].encode()) if rows else None

    def batches(self, *, run_id: str | None = None, channel: str | None = None) -> list[BatchReady]:
        """All stored batches, by run, channel and sequence."""
        rows = self._rows(_BATCHES, {"run_id": run_id or "", "channel": channel or ""})
        return [decode(READY_BATCHES, row["event"].encode()) for row in rows]

    def trajectory(self, member: GroupMember) -> ResolvedTrajectory | None:
        """The member's trajectory, if stored. Raises `IntegrityError` where it is not the member's."""
        rows = self._rows(_TRAJECTORY, {"trajectory_id": member.trajectory_id})
        if not rows:
            return None
        row = rows[0]
        key = {name: row[name] for name in ("run_id", "group_id", "trajectory_id")}
        steps = self._rows(_STEPS, key)
        trained = trained_step_ids(
            {step["step_id"]: step["parent_step_id"] for step in steps if not step["superseded"]},
            tip=row["trained_tip_step_id"],
        )
        trajectory = ResolvedTrajectory(
            trajectory_id=row["trajectory_id"],
            prompt_id=row["prompt_id"],
            group_id=row["group_id"],
            run_id=row["run_id"],
            channel=row["channel"],
            round=row["round"],
            rollout_index=row["rollout_index"],
            policy=row["policy"],
            outcome=row["outcome"],
            outcome_reason=row["outcome_reason"],
            seal_reason=row["seal_reason"],
            reward=member.reward,
            rewards=[
                {name: reward[name] for name in ("name", "value", "step_id", "version")}
                for reward in json.loads(row["rewards"])
            ],
            integrity=json.loads(row["integrity"]),
            metadata=json.loads(row["metadata"]),
            branches=tuple(msgspec.json.decode(row["branch_list"] or "[]", type=list[Branch])),
            trained_branch=_trained_branch(row, len(trained)),
            steps=tuple(_step(step, trained=step["step_id"] in trained) for step in steps),
            read_from="clickhouse",
        )
        check(trajectory, member)
        return trajectory

    def _rows(self, sql: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        try:
            return list(self._client.query(sql, parameters=dict(parameters)).named_results())
        except (ClickHouseError, OSError) as exc:
            raise Unavailable(f"ClickHouse does not answer: {exc}") from exc


def _trained_branch(row: Mapping[str, Any], steps: int) -> TrainedBranch | None:
    if row["trained_branch"]:
        return msgspec.json.decode(row["trained_branch"], type=TrainedBranch)
    if row["trained_tip_step_id"] is None:
        return None
    # Stored before the reason was kept.
    return TrainedBranch(
        tip_step_id=row["trained_tip_step_id"], steps=steps, rule=row["trained_by"], reason=""
    )


def _step(row: Mapping[str, Any], *, trained: bool) -> ResolvedStep:
    prompt_ids = list(row["prompt_ids"])
    resolved = PROMPT_UNRESOLVED not in row["integrity"]
    if resolved and ids_digest(prompt_ids) != row["prompt_digest"]:
        raise IntegrityError(f"step {row['step_id']}: stored prompt ids do not have the captured digest")
    return ResolvedStep(
        step_id=row["step_id"],
        step_index=row["step_index"],
        status=row["status"],
        relation=row["relation"],
        parent_step_id=row["parent_step_id"],
        superseded=row["superseded"],
        trained=trained,
        trainable=row["trainable"],
        integrity=tuple(row["integrity"]),
        token_source=row["token_source"],
        prompt_ids=prompt_ids,
        response_ids=list(row["response_ids"]),
        logprobs=list(row["logprobs"]),
        messages=json.loads(row["messages"] or "[]"),
        tools=json.loads(row["tools"]) if row["tools"] else None,
        message=json.loads(row["message"]) if row["message"] else None,
        finish_reason=row["finish_reason"],
        model=row["model"],
        engine=row["engine"],
        engine_request_id=row["engine_request_id"],
        policy=row["policy"],
        policy_version_start=row["policy_version_start"],
        policy_version_end=row["policy_version_end"],
        sampling=json.loads(row["sampling"]),
        reward=row["step_reward"],
        latency_ms=row["latency_ms"],
        extras=json.loads(row["extras"]),
        metadata=json.loads(row["metadata"]),
    )
