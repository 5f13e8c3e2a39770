"""How each kind of engine takes new weights. The caller holds the engine's calls meanwhile."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from agentworld.contract.errors import Retryable
from agentworld.contract.events import PolicyPublished
from gateway.engines.base import EngineKind


class UpdateFailed(Retryable):
    """The engine did not take the weights; it serves its old ones."""


class EngineControl(Protocol):
    """An engine's control routes, beside `/v1`."""

    async def post(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The reply's body. Raises `UpdateFailed` for anything but 200."""
        ...

    async def get(self, path: str) -> bytes:
        """The reply's body. Raises `UpdateFailed` for anything but 200."""
        ...


class Weights(Protocol):
    """One kind of engine."""

    async def serving(self, control: EngineControl) -> int | None:
        """The version that the engine says it serves; None where it says none. Raises `UpdateFailed`."""
        ...

    async def load(self, control: EngineControl, published: PolicyPublished) -> None:
        """Serve the published weights from here on. Raises `UpdateFailed`."""
        ...


def weights_of(kind: EngineKind) -> Weights | None:
    """How that kind of engine takes weights; None where it takes none."""
    match kind:
        case "vllm":
            return VllmWeights()
        case "sglang":
            return SglangWeights()
        case "policy_server":
            return PolicyServerWeights()
        case "openai":
            return None


class VllmWeights:
    """vLLM with `VLLM_SERVER_DEV_MODE=1`: pause, reload, forget the prefix cache, resume."""

    async def serving(self, control: EngineControl) -> int | None:
        """From `/weight_info`; none while it is paused, so that a failed resume is made good."""
        if _object(await control.get("/is_paused")).get("is_paused"):
            return None
        return _version(await control.get("/weight_info"))

    async def load(self, control: EngineControl, published: PolicyPublished) -> None:
        """Calls under way are waited for, so that none mixes two versions."""
        await control.post("/pause?mode=wait")
        try:
            reload = {"method": "reload_weights", "kwargs": {"weights_path": weights_path(published)}}
            await control.post("/collective_rpc", reload)
            await control.post("/reset_prefix_cache")
            await control.post("/update_weight_version", {"new_version": str(published.version)})
        finally:
            await control.post("/resume")


class SglangWeights:
    """SGLang: one route, which waits for the calls under way and flushes the cache."""

    async def serving(self, control: EngineControl) -> int | None:
        """From `/get_model_info`."""
        return _version(await control.get("/get_model_info"))

    async def load(self, control: EngineControl, published: PolicyPublished) -> None:
        """Load from a path that the engine can read."""
        body = {
            "model_path": weights_path(published),
            "weight_version": str(published.version),
            "flush_cache": True,
        }
        reply = _object(await control.post("/update_weights_from_disk", body))
        if reply.get("success") is False:
            raise UpdateFailed(
                f"SGLang did not load the weights: {reply.get('message', 'it says no reason')}"
            )


class PolicyServerWeights:
    """The local policy server: `/reload`, between two batches."""

    async def serving(self, control: EngineControl) -> int | None:
        """From `/weight_info`."""
        return _version(await control.get("/weight_info"))

    async def load(self, control: EngineControl, published: PolicyPublished) -> None:
        """Load from a path that the server can read."""
        await control.post("/reload", {"path": weights_path(published), "version": published.version})


def weights_path(published: PolicyPublished) -> str:
    """The path of a `file:` URI; any other location as it is, for the engine to understand."""
    parts = urlsplit(published.weights_uri)
    return unquote(parts.path) if parts.scheme == "file" else published.weights_uri


def _object(body: bytes) -> dict[str, Any]:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        value = msgspec.json.decode(body)
        if isinstance(value, dict):
            return value
    return {}


def _version(body: bytes) -> int | None:
    value = _object(body).get("weight_version")
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) else None
