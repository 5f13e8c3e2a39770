"""Settings that several services read. Environment variables, prefix per section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class KafkaSettings(BaseSettings):
    """How to reach the broker. `AGENTWORLD_KAFKA_*`."""

    model_config = SettingsConfigDict(env_prefix="AGENTWORLD_KAFKA_", use_attribute_docstrings=True)

    bootstrap: str = "127.0.0.1:9092"
    """Comma-separated host:port list."""
    topic_prefix: str = "agentworld."
    """Stands before every topic name and consumer group, so that deployments can share a cluster."""
    partitions: int | None = Field(default=None, ge=1)
    """Partitions of topics created here; default: each topic's own (24). One count for all topics:
    the processors need them co-partitioned. Topics that exist keep theirs."""
    replication_factor: int = Field(default=1, ge=1)
    """Copies of each partition of topics created here; use 3 on a cluster."""
    topic_config: dict[str, str] = {}
    """Extra topic configuration at creation, e.g. `{"min.insync.replicas": "2"}`."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = Field(default="", repr=False)
    ssl_ca_location: str = ""
    """PEM file of the cluster's CA."""
    idle_fetch_ms: int = Field(default=0, ge=0)
    """Pause between fetches while nothing new comes; only for brokers that answer an empty fetch at
    once (the embedded one), where it saves CPU and delays the first record after a pause by as much."""
    client_options: dict[str, str] = {}
    """Further librdkafka options for every client, as JSON."""


class ClickHouseSettings(BaseSettings):
    """How to reach ClickHouse over HTTP. `AGENTWORLD_CLICKHOUSE_*`."""

    model_config = SettingsConfigDict(env_prefix="AGENTWORLD_CLICKHOUSE_", use_attribute_docstrings=True)

    url: str = "http://127.0.0.1:8123"
    """HTTP or HTTPS endpoint."""
    database: str = "agentworld"
    user: str = "default"
    password: str = Field(default="", repr=False)
    connect_timeout_s: float = 5.0
    query_timeout_s: float = 60.0
