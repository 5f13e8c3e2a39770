"""Anthropic's Claude Code CLI: Messages, streaming."""

from __future__ import annotations

from dataclasses import dataclass

from tests.agents.clients.base import Launch, Order, WireProtocol, cli
from tests.agents.comparison import PrefixClass


@dataclass(frozen=True, slots=True)
class ClaudeCode:
    """`claude -p`, configured by environment variables alone."""

    name: str = "claude-code"
    protocol: WireProtocol = "messages"
    stream: bool = True
    prefix_class: PrefixClass = "exact"

    def launch(self, order: Order) -> Launch:
        """A model name it knows keeps it from putting system turns between messages."""
        env = {
            "ANTHROPIC_BASE_URL": order.url,
            "ANTHROPIC_AUTH_TOKEN": order.key,
            "ANTHROPIC_MODEL": "claude-sonnet-4-5",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude-haiku-4-5",
            "ANTHROPIC_SMALL_FAST_MODEL": "claude-haiku-4-5",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8192",
            "API_TIMEOUT_MS": "60000",
            "IS_SANDBOX": "1",
        }
        return Launch([cli("claude"), "-p", order.task.prompt, "--dangerously-skip-permissions"], env)
