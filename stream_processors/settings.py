"""Settings of the stream processors. Environment variables, prefix `AGENTWORLD_PROCESSORS_`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.settings import KafkaSettings
from stream_processors.rule_book import RuleBook
from stream_processors.rules import DAY_MS, BatchRules, GroupRules, RewardRules, Rules, RuleSource, SealRules


class ProcessorSettings(BaseSettings):
    """How trajectories are sealed, groups decided and batches released."""

    model_config = SettingsConfigDict(env_prefix="AGENTWORLD_PROCESSORS_", use_attribute_docstrings=True)

    instance: str = "0"
    """Names this worker among several; its static consumer-group membership follows from it, so a
    restart under the same name takes its partitions back without a rebalance."""
    health_host: str = "127.0.0.1"
    """Address on which `/health` and `/metrics` are served."""
    health_port: int = Field(default=8701, ge=0)
    """Port of `/health` and `/metrics`; 0 picks a free one (logged)."""
    data_dir: Path = Path(".agentworld/processors")
    """Scratch directory of Faust; state lives in changelog topics, not here."""
    rules_file: Path | None = None
    """TOML file with the rules of each run (`docs/rules.md`); what it leaves out stands below."""
    grace_ms: int = Field(default=2_000, ge=0)
    """Log time after `TrajectoryCompleted` in which late steps are still taken."""
    idle_timeout_ms: int = Field(default=600_000, gt=0)
    """Log time without an event after which a trajectory is sealed as abandoned."""
    max_steps: int = Field(default=0, ge=0)
    """Steps at which a trajectory is sealed; 0: no limit."""
    group_deadline_ms: int = Field(default=DAY_MS, gt=0)
    """Log time after a group's first seal at which it expires with fewer than n trajectories."""
    batch_groups: int = Field(default=8, gt=0)
    """Groups in a full batch."""
    batch_linger_ms: int = Field(default=0, ge=0)
    """Log time after which a waiting group is released in a short batch; 0: never short."""
    reward_name: str = "reward"
    """Which named reward trains."""
    clock_interval_ms: int = Field(default=1_000, gt=0, le=1_000)
    """How often time is carried forward in a partition while something there is open."""
    closed_ttl_ms: int = Field(default=6 * 3_600_000, gt=0)
    """Log time for which sealed trajectories, decided groups and batched groups are remembered, so
    that redeliveries change nothing and late events are told apart. Longer than any redelivery."""
    session_timeout_ms: int = Field(default=6_000, ge=1_000)
    """Silence after which the broker gives a dead worker's partitions to others."""
    stall_timeout_ms: int = Field(default=60_000, gt=0)
    """Lag without progress for this long ends the process, so that its supervisor restarts it."""
    delivery_timeout_ms: int = Field(default=120_000, gt=0)
    """How long a broker may stay away before the process gives up and exits to be restarted."""


def rules_of(settings: ProcessorSettings, kafka: KafkaSettings) -> RuleSource:
    """The rules that settings and their rules file ask for. Raises `InvalidInput` for a wrong file."""
    topic_limit_bytes = int(kafka.topic_config.get("max.message.bytes", TRAJECTORIES.max_message_bytes))
    base = Rules(
        seal=SealRules(
            grace_ms=settings.grace_ms,
            idle_timeout_ms=settings.idle_timeout_ms,
            max_steps=settings.max_steps,
        ),
        group=GroupRules(deadline_ms=settings.group_deadline_ms),
        reward=RewardRules(names=(settings.reward_name,)),
        batch=BatchRules(groups=settings.batch_groups, linger_ms=settings.batch_linger_ms),
        closed_ttl_ms=settings.closed_ttl_ms,
        max_sealed_bytes=max(64 * 1024, topic_limit_bytes - 64 * 1024),
    )
    return RuleBook.read(settings.rules_file, base) if settings.rules_file else base
