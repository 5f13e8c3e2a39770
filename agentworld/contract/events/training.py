"""Topics `policy-versions` and `training-events`: what the trainer did."""

from __future__ import annotations

from agentworld.contract.events.base import Event, Json


class PolicyPublished(Event, frozen=True, kw_only=True, tag="policy_published"):
    """New weights are available under the next version."""

    policy: str
    version: int
    weights_uri: str
    digest: str
    """`sha256:<hex>` over the exported weight files, in name order."""
    run_id: str | None = None
    batch_id: str | None = None
    """The batch whose update produced it."""
    rollback_of: int | None = None


class BatchConsumed(Event, frozen=True, kw_only=True, tag="batch_consumed"):
    """A trainer took a batch; its effect is in the checkpoint of `policy_version`."""

    batch_id: str
    run_id: str
    channel: str
    consumer: str
    policy: str
    policy_version: int


class StepTrained(Event, frozen=True, kw_only=True, tag="step_trained"):
    """One optimiser step on a batch."""

    batch_id: str
    run_id: str
    channel: str
    policy: str
    policy_version: int
    optimizer_step: int
    metrics: dict[str, float]
    details: Json = {}


TrainingEvent = BatchConsumed | StepTrained
