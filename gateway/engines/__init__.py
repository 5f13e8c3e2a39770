"""One adapter per kind of engine: what it is asked for, how its answer becomes the canonical one.

Weights and tokenizers of an engine live here too. Everything but them is pure.
"""

from __future__ import annotations

from gateway.engines.base import EngineAdapter, EngineKind, Reading
from gateway.engines.openai_api import OpenAiAdapter
from gateway.engines.sglang import SglangAdapter
from gateway.engines.vllm import VllmAdapter

__all__ = ["EngineAdapter", "EngineKind", "Reading", "adapter_of"]


def adapter_of(kind: EngineKind, *, logprobs: bool = True) -> EngineAdapter:
    """The adapter for a kind of engine. `logprobs` is whether to ask for them."""
    match kind:
        case "vllm" | "policy_server":
            return VllmAdapter(logprobs=logprobs)
        case "sglang":
            return SglangAdapter(logprobs=logprobs)
        case "openai":
            return OpenAiAdapter(logprobs=logprobs)
