"""What the pure logic needs to know of the settings."""

from __future__ import annotations

from dataclasses import dataclass

from agentworld.contract.topics import TRAJECTORIES


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of sealing, deciding and batching; the same log under equal rules gives equal bytes.

    All times are log time in milliseconds (see `clock`). Fields as in `ProcessorSettings`.
    """

    grace_ms: int = 2_000
    idle_timeout_ms: int = 600_000
    max_steps: int = 0
    group_deadline_ms: int = 3_600_000
    batch_groups: int = 8
    batch_linger_ms: int = 0
    reward_name: str = "reward"
    closed_ttl_ms: int = 6 * 3_600_000
    max_sealed_bytes: int = TRAJECTORIES.max_message_bytes - 64 * 1024
    """Longest encoded `TrajectorySealed`; the rest of the topic's limit is for headers and framing."""
