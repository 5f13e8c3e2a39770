"""Settings of the gateway. Environment variables `AGENTWORLD_GATEWAY_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from gateway.engines.base import EngineKind

MiB = 1024 * 1024


class GatewaySettings(BaseSettings):
    """How this gateway serves, whom it asks, and what it does while the broker is away."""

    model_config = SettingsConfigDict(env_prefix="AGENTWORLD_GATEWAY_", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8700, ge=0, le=65535)
    """Port to listen on; 0 takes a free one and logs it."""
    instance: str = Field(default="0", pattern=r"^[A-Za-z0-9_-]{1,32}$")
    """Name of this replica; it must not change across restarts: the spool is found by it."""
    public_url: str = ""
    """URL under which agents reach this gateway, for `base_url` in replies; default: the request's host."""

    upstream_url: str = "http://127.0.0.1:9000/v1"
    """Base URL of the engine's OpenAI-compatible API."""
    upstream_api_key: str = Field(default="", repr=False)
    """Bearer token for the engine; where empty, the client's own Authorization header is forwarded."""
    upstream_name: str = "default"
    """Name of the engine in captured steps."""
    upstream_model: str = ""
    """Model that `default` in a request stands for; empty: the engine's only model, asked once."""
    upstream_kind: EngineKind = "vllm"
    """What the engine is: `vllm`, `sglang`, `openai` or `policy_server`."""
    upstream_aliases: list[str] = []
    """Further names for its model, as a JSON list: `["claude-sonnet-4-5"]`."""
    upstream_continue_tokens: bool = False
    """Whether prompts begin with exactly the ids sampled before; `continue_tokens` in the upstreams file."""
    upstreams_file: Path | None = None
    """TOML or JSON file with several engines and models; it replaces the other `upstream_…` settings."""
    upstream_connect_timeout_ms: int = Field(default=5_000, gt=0)
    """Longest wait for a connection to the engine; beyond it the call gets 502."""
    upstream_timeout_ms: int = Field(default=600_000, gt=0)
    """Longest silence of the engine during a call; beyond it the call gets 504."""
    upstream_connections: int = Field(default=2048, gt=0)
    """Most connections open to the engine; further calls wait for one."""

    max_body_bytes: int = Field(default=8 * MiB, gt=0)
    """Largest request body; beyond it a call gets 413. A captured step must fit a record of 16 MiB."""
    default_run_id: str = "default"
    """Run of trajectories whose registration names none."""
    default_rollouts: int = Field(default=1, ge=1)
    """n of trajectories whose registration names none."""
    raw_content: bool = False
    """Whether chat calls are answered with the sampled text as it is, tool calls unparsed, as Claw-R1's
    gateway does; a registration's `raw_content` overrides it."""

    ack_timeout_ms: int = Field(default=2_000, gt=0)
    """Longest wait for the broker's acknowledgement; then the record goes to the spool."""
    spool_dir: Path = Path(".agentworld/spool")
    """Where records wait while the broker is away; each instance has its own folder in it."""
    spool_max_bytes: int = Field(default=2 * 1024 * MiB, ge=0)
    """Disk held for records while the broker is away; beyond it, calls get 503."""
    spool_keep_ms: int = Field(default=0, ge=0)
    """How long acknowledged records are kept, to be published again after a broker's crash.
    0 on a replicated cluster; seconds on a broker that may lose its last second."""

    leaves_per_trajectory: int = Field(default=16, ge=1)
    """Recent steps per trajectory that a prompt may be shortened against."""
    leaves_max_bytes: int = Field(default=256 * MiB, ge=0)
    """Memory for those; the least recently used trajectories go first and then send whole prompts."""
    directory_max_trajectories: int = Field(default=500_000, ge=1)
    """Trajectories known in memory, about 0.5 KB each."""
    drain_timeout_ms: int = Field(default=30_000, ge=0)
    """How long calls under way may take after SIGTERM; then they are stopped, and captured so."""

    restore: bool = True
    """Whether a sampled turn that a client rewrote on echo is put back before the engine sees it."""
    restore_turns_per_trajectory: int = Field(default=1024, ge=1)
    """Sampled turns per trajectory that can be put back."""
    restore_max_bytes: int = Field(default=256 * MiB, ge=0)
    """Memory for those; the least recently used trajectories are forgotten first."""
    inner_system: Literal["system", "user"] = "system"
    """Role that system and developer turns within a Responses or Messages conversation get; `user` for
    chat templates that take a system message only at the start."""

    keepalive_ms: int = Field(default=10_000, ge=100)
    """Silence of the engine after which a stream gets a keep-alive, again and again."""
    first_keepalive_ms: int = Field(default=0, ge=0)
    """When a stream gets its first keep-alive, and with it status 200 and headers, where the engine has
    not answered yet; 0: after `keepalive_ms`. 2000 suits clients that wait only seconds for headers."""
    client_stall_ms: int = Field(default=300_000, ge=100)
    """How long a client may leave its stream unread; then the call is cancelled."""

    max_answer_bytes: int = Field(default=64 * MiB, gt=0)
    """Largest answer of an engine, as it sends it; beyond it a call gets 502."""
    max_header_bytes: int = Field(default=64 * 1024, ge=1024)
    """Largest head of a request, all headers together; beyond it a call gets 431."""
    max_calls_per_key: int = Field(default=0, ge=0)
    """Calls that one API key (or address, without a key) may have under way; beyond it 429. 0: any number."""

    online: bool = True
    """Whether calls at `/v1/…`, without a trajectory in the path, are taken; each conversation found
    becomes a trajectory."""
    online_channel: str = "train"
    """Channel of those trajectories; run and n are `default_run_id` and `default_rollouts`."""
    online_max_conversations: int = Field(default=100_000, ge=1)
    """Conversations that can be found by their prefix; the oldest are forgotten first."""

    auth_secret: str = Field(default="", repr=False)
    """Signs the tokens in trajectories' paths; empty: anybody may call. All gateways share it."""
    auth_keys: list[str] = Field(default=[], repr=False)
    """API keys, as a JSON list, of those who begin trajectories and call without one; with `auth_secret`."""
    auth_token_ttl_ms: int = Field(default=7 * 24 * 3_600_000, gt=0)
    """How long a trajectory's token is good."""

    reward_function: str = ""
    """Import path `package.module:function` of what `POST /compute_reward` calls; empty: 501."""
