"""What a trainer says: a new policy version, a batch that it took. Equal calls give equal ids."""

from __future__ import annotations

from agentworld.contract.events import BatchConsumed, PolicyPublished
from agentworld.contract.ids import derived_id


def published(version: int, *, at_ms: int, policy: str = "default") -> PolicyPublished:
    """Weights under the next version."""
    return PolicyPublished(
        event_id=derived_id("published", policy, version),
        event_time_ms=at_ms,
        source="trainer",
        policy=policy,
        version=version,
        weights_uri="file:///w",
        digest="sha256:00",
    )


def consumed(batch_id: str, *, at_ms: int, run_id: str = "run", channel: str = "train") -> BatchConsumed:
    """The trainer took a batch."""
    return BatchConsumed(
        event_id=derived_id("consumed", batch_id),
        event_time_ms=at_ms,
        source="trainer",
        batch_id=batch_id,
        run_id=run_id,
        channel=channel,
        consumer="verl-0",
        policy="default",
        policy_version=1,
    )
