"""Settings of the evaluators. Environment variables, prefix `AGENTWORLD_EVALUATORS_`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class EvaluatorSettings(BaseSettings):
    """Beside these, the evaluators read `AGENTWORLD_KAFKA_*`, and the API keys that the rules file names."""

    model_config = SettingsConfigDict(env_prefix="AGENTWORLD_EVALUATORS_", use_attribute_docstrings=True)

    instance: str = "0"
    """Which of several evaluator processes this is; membership in the consumer group is static by it, so
    two with the same instance shut each other out."""
    health_host: str = "127.0.0.1"
    """Address of `/health` and `/metrics`."""
    health_port: int = Field(default=8703, ge=0, le=65535)
    """Port of `/health` and `/metrics`; 0 picks a free one (logged)."""
    rules_file: Path | None = None
    """TOML file with the evaluators of each run, the same that the processors read (`docs/evaluators.md`)."""
    data_dir: Path = Path(".agentworld/evaluators")
    """Where it is written down what has been spent."""
    max_open: int = Field(default=64, ge=1)
    """Trajectories that are evaluated at a time; no more are begun meanwhile."""
    read_ahead: int = Field(default=200, ge=1)
    """Records read at a time and held in memory. Among them are answers from before a crash, which are not
    paid for again."""
    drain_ms: int = Field(default=15_000, ge=0)
    """How long evaluations under way may go on after SIGTERM; what is not done then is repeated."""
    retry_max_ms: int = Field(default=5_000, ge=1)
    """Longest pause between tries while the broker is away."""
