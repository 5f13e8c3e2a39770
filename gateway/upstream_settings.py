"""Which engines there are, by model name: from a file (TOML or JSON), or one engine from the environment."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentworld.contract.errors import ContractViolation
from gateway.engines.base import EngineKind
from gateway.settings import GatewaySettings

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:/@-]{1,128}$")]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class EngineSettings(_Settings):
    """One engine."""

    name: Name
    """Its name in captured steps, in logs and in `/health`."""
    url: str = Field(pattern=r"^https?://")
    """Base URL of its OpenAI-compatible API, with `/v1`."""
    kind: EngineKind = "vllm"
    """What it is: decides what is asked for, and how weights are loaded."""
    model: str = ""
    """Its own name for the model; empty: its only model, asked once."""
    api_key: str = Field(default="", repr=False)
    """Bearer token."""
    api_key_env: str = ""
    """Environment variable that holds the bearer token, so that the file needs none."""
    forward_authorization: bool = False
    """Where there is no key: whether the client's own Authorization header is sent to this engine."""
    logprobs: bool = True
    """Whether to ask for log-probabilities. An API that refuses them is not asked twice."""
    logprobs_mode: str = ""
    """What distribution they are of (vLLM's `--logprobs-mode`); stands in captured steps."""
    tokenizer: str = ""
    """For engines that give no ids: path of a `tokenizer.json`, or `package.module:factory`."""
    chat_template: Path | None = None
    """The model's Jinja template, for `tokenizer`."""
    continue_tokens: bool = False
    """Whether the next prompt begins with exactly the ids sampled before, where the engine takes prompts
    of chats as ids (vLLM's `kv_transfer_params.prompt_token_ids`, SGLang's `input_ids`). Costs two
    renderings per call."""
    update_weights: bool = False
    """Load each published version of the pool's policy into this engine. In one gateway only."""
    update_timeout_ms: int = Field(default=600_000, gt=0)
    """Longest wait for one step of a weight update."""
    health_path: str = ""
    """Path beside `/v1` that answers 200 while the engine is well; default: by kind."""
    connections: int = Field(default=2048, gt=0)
    """Most connections open to it; further calls wait for one."""
    connect_timeout_ms: int = Field(default=5_000, gt=0)
    """Longest wait for a connection."""
    timeout_ms: int = Field(default=600_000, gt=0)
    """Longest silence during a call."""

    @model_validator(mode="after")
    def _can_continue(self) -> Self:
        if self.continue_tokens and self.kind == "openai":
            raise ValueError("`continue_tokens` needs an engine of kind vllm, sglang or policy_server")
        return self

    def key(self) -> str:
        """The bearer token, if any. Raises `ContractViolation` where its variable is not set."""
        if self.api_key or not self.api_key_env:
            return self.api_key
        if not (key := os.environ.get(self.api_key_env)):
            raise ContractViolation(f"engine {self.name!r} takes its key from {self.api_key_env}: set that")
        return key


class PoolSettings(_Settings):
    """Engines that serve one model."""

    name: Name
    """What clients put into `model`."""
    aliases: list[Name] = []
    """Other names for it, such as `claude-sonnet-4-5` for clients that insist on one."""
    policy: str | None = None
    """Policy in `policy-versions`; default: the pool's name, or none for a frozen model."""
    trainable: bool = True
    """False for frozen models (judge, teacher): captured, never trained on."""
    passes_names: bool = False
    """Whether this pool also takes calls for models that no pool names, under that name."""
    spill_calls: int = Field(default=16, ge=0)
    """A trajectory leaves its engine for one call when that has so many more open calls than another."""
    engines: list[EngineSettings] = Field(min_length=1)

    @property
    def policy_name(self) -> str | None:
        """The policy whose versions count for this pool."""
        return self.policy or (self.name if self.trainable else None)


class UpstreamSettings(_Settings):
    """All pools, and how failures of their engines are met."""

    pools: list[PoolSettings] = Field(min_length=1)
    default: str = ""
    """Pool for `default` and for calls without a model; empty: the only trainable one."""
    retries: int = Field(default=2, ge=0)
    """Further tries for a call of which nothing was answered: no connection, 502, 503, short 429."""
    retry_after_max_ms: int = Field(default=2_000, ge=0)
    """A 429 is retried only where its Retry-After is at most this."""
    breaker_failures: int = Field(default=5, ge=0)
    """After so many failures in a row an engine gets no calls for a while; 0: never."""
    breaker_open_ms: int = Field(default=5_000, gt=0)
    """That while; then one call tries it again."""
    health_interval_ms: int = Field(default=5_000, ge=0)
    """Time between two health checks of an engine; 0: none."""
    health_timeout_ms: int = Field(default=2_000, gt=0)
    """Longest wait for an answer to one."""
    update_tries: int = Field(default=3, ge=1)
    """How often loading a version is tried before an engine keeps its old one."""
    update_retry_ms: int = Field(default=2_000, ge=0)
    """Time between two tries."""
    by_trajectory_policy: bool = False
    """Whether the trajectory's own policy counts, whatever pool answers: one engine from the environment."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [name for pool in self.pools for name in (pool.name, *pool.aliases)]
        engines = [engine.name for pool in self.pools for engine in pool.engines]
        for what, found in (("model", names), ("engine", engines)):
            for name in found:
                if found.count(name) > 1:
                    raise ValueError(f"two have the {what} name {name!r}: give each its own")
        if self.default and self.default not in names:
            raise ValueError(f"`default` names {self.default!r}, which is none of {', '.join(names)}")
        if sum(pool.passes_names for pool in self.pools) > 1:
            raise ValueError("only one pool may have `passes_names`")
        return self

    @classmethod
    def of(cls, settings: GatewaySettings) -> UpstreamSettings:
        """From the file that `settings` names, else the one engine at its `upstream_url`."""
        path = settings.upstreams_file
        return load_upstreams(path) if path is not None else _one_engine(settings)


def _one_engine(settings: GatewaySettings) -> UpstreamSettings:
    engine = EngineSettings(
        name=settings.upstream_name,
        url=settings.upstream_url,
        kind=settings.upstream_kind,
        model=settings.upstream_model,
        api_key=settings.upstream_api_key,
        forward_authorization=True,
        continue_tokens=settings.upstream_continue_tokens and settings.upstream_kind != "openai",
        connections=settings.upstream_connections,
        connect_timeout_ms=settings.upstream_connect_timeout_ms,
        timeout_ms=settings.upstream_timeout_ms,
    )
    pool = PoolSettings(
        name="default", aliases=settings.upstream_aliases, passes_names=True, engines=[engine]
    )
    return UpstreamSettings(
        pools=[pool],
        default="default",
        retries=0,
        breaker_failures=0,
        health_interval_ms=0,
        by_trajectory_policy=True,
    )


def load_upstreams(path: Path) -> UpstreamSettings:
    """Read a `.toml` or `.json` file. Raises `ContractViolation` that says what to change."""
    try:
        data = path.read_bytes()
        raw = msgspec.json.decode(data) if path.suffix == ".json" else tomllib.loads(data.decode())
        return UpstreamSettings.model_validate(raw)
    except OSError as exc:
        raise ContractViolation(
            f"cannot read {path} ({exc.strerror}): correct AGENTWORLD_GATEWAY_UPSTREAMS_FILE"
        ) from exc
    except (msgspec.MsgspecError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ContractViolation(f"{path} is no valid {path.suffix[1:] or 'TOML'}: {exc}") from exc
    except ValidationError as exc:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in exc.errors())
        raise ContractViolation(f"{path}: {wrong}") from exc
