"""Settings of the sink. Environment variables `AGENTWORLD_SINK_*`."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class SinkSettings(BaseSettings):
    """Beside these, the sink reads `AGENTWORLD_KAFKA_*` and `AGENTWORLD_CLICKHOUSE_*`."""

    model_config = SettingsConfigDict(env_prefix="AGENTWORLD_SINK_", use_attribute_docstrings=True)

    instance: str = "0"
    """Which of several sinks this is; membership in the consumer group is static by it, so two
    sinks with the same instance shut each other out."""
    health_host: str = "127.0.0.1"
    """Address of `/health` and `/metrics`."""
    health_port: int = Field(default=8702, ge=0, le=65535)
    """Port of `/health` and `/metrics`; 0 picks a free one (logged)."""
    batch_rows: int = Field(default=1000, ge=1)
    """Records gathered before a write; large inserts are what ClickHouse likes."""
    batch_ms: int = Field(default=500, ge=0)
    """How long a record waits for others before it is written."""
    batch_bytes: int = Field(default=32 * 1024**2, ge=1)
    """Record bytes gathered before a write. Rows of expanded prompts are written in slices of about
    this size, so it bounds memory."""
    retry_max_ms: int = Field(default=5_000, ge=1)
    """Longest pause between tries while ClickHouse or the broker is away."""
