"""One module per client: how it is configured and started. `ALL` lists the rows of the report."""

from __future__ import annotations

from tests.agents.clients import (
    claude_code,
    codex,
    mini_swe_agent,
    openclaw,
    opencode,
    scripts,
)
from tests.agents.clients.base import Client

ALL: tuple[Client, ...] = (
    *codex.MODELS,
    claude_code.ClaudeCode(),
    *openclaw.ADAPTERS,
    opencode.OpenCode(),
    mini_swe_agent.MiniSweAgent(),
    *scripts.SDKS,
)

__all__ = ["ALL", "Client"]
