"""`policy-versions` and `training-events` → `policy_versions`, `training_steps`, `batch_consumptions`."""

from __future__ import annotations

from agentworld.contract.events import BatchConsumed, PolicyPublished, TrainingEvent
from agentworld.platform.log import Record
from sinks.rows.row import Row, json_text, origin


def policy_rows_of(record: Record, event: PolicyPublished) -> list[Row]:
    """One row per published version."""
    return [
        Row(
            "policy_versions",
            {
                "policy": event.policy,
                "version": event.version,
                "weights_uri": event.weights_uri,
                "digest": event.digest,
                "run_id": event.run_id or "",
                "batch_id": event.batch_id or "",
                "rollback_of": event.rollback_of,
                **origin(record, event),
            },
        )
    ]


def training_rows_of(record: Record, event: TrainingEvent) -> list[Row]:
    """One row per optimiser step, one per consumed batch."""
    if isinstance(event, BatchConsumed):
        return [
            Row(
                "batch_consumptions",
                {
                    "run_id": event.run_id,
                    "channel": event.channel,
                    "batch_id": event.batch_id,
                    "consumer": event.consumer,
                    "policy": event.policy,
                    "policy_version": event.policy_version,
                    **origin(record, event),
                },
            )
        ]
    return [
        Row(
            "training_steps",
            {
                "run_id": event.run_id,
                "channel": event.channel,
                "batch_id": event.batch_id,
                "optimizer_step": event.optimizer_step,
                "policy": event.policy,
                "policy_version": event.policy_version,
                "metrics": event.metrics,
                "details": json_text(event.details),
                **origin(record, event),
            },
        )
    ]
