"""What `agentworld up` was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StackOptions(BaseModel):
    """One stack. Everything it keeps lies under `data_dir`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data_dir: Path = Path(".agentworld")
    """Data, logs and the state file; one stack per directory."""
    broker: Literal["embedded", "apache"] = "embedded"
    """Which broker to start: the one from PyPI, or real Apache Kafka (Java 17 and Maven)."""
    kafka: str | None = None
    """`host:port` of a broker that runs already; none is started then."""
    clickhouse: str | None = None
    """URL of a ClickHouse server that runs already; none is started then."""
    upstream_url: str | None = None
    """Base URL of the gateway's engine, e.g. `http://127.0.0.1:9000/v1`."""
    gateways: int = Field(default=1, ge=1, le=16)
    processors: int = Field(default=1, ge=1, le=16)
    rules: Path | None = None
    """TOML file with the rules of each run, for the stream processors, and their evaluators, which run where
    it has any; none: settings alone, and no evaluators."""
    gateway_port: int = Field(default=8700, ge=1, le=65535)
    """Port of the first gateway, where it is free; otherwise a free one is taken."""
    kafka_port: int = Field(default=9092, ge=1, le=65535)
    """Port of the broker, where it is free."""
    clickhouse_port: int = Field(default=8123, ge=1, le=65535)
    """HTTP port of ClickHouse, where it is free."""
    environment: dict[str, str] = {}
    """Further environment variables for the services; they win over what the stack sets."""
