"""OpenClaw: one agent, three wire adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.agents.clients.base import MODEL, Launch, Order, WireProtocol, cli
from tests.agents.comparison import PrefixClass


@dataclass(frozen=True, slots=True)
class OpenClaw:
    """`openclaw agent exec`: a headless turn with a configuration file of its own."""

    name: str
    protocol: WireProtocol
    api: str
    """Name of the adapter in OpenClaw's configuration."""
    stream: bool = True
    prefix_class: PrefixClass = "exact"

    def launch(self, order: Order) -> Launch:
        """Its state and configuration stand in the run's home."""
        state, config = order.home / ".openclaw", order.home / "openclaw.json"
        state.mkdir()
        config.write_text(json.dumps(self._config(order), indent=2))
        argv = [
            *(cli("openclaw"), "agent", "exec", order.task.prompt),
            *("--config", str(config), "--state-dir", str(state), "--cwd", str(order.workdir)),
            *("--model", f"gateway/{MODEL}", "--timeout", "600"),
        ]
        env = {
            "OPENCLAW_STATE_DIR": str(state),
            "OPENCLAW_CONFIG_PATH": str(config),
            "OPENCLAW_DISABLE_BONJOUR": "1",
            "OPENCLAW_NO_AUTO_UPDATE": "1",
            "OPENCLAW_NO_RESPAWN": "1",
        }
        return Launch(argv, env)

    def _config(self, order: Order) -> dict[str, object]:
        model: dict[str, object] = {
            "id": MODEL,
            "name": MODEL,
            "reasoning": True,
            "input": ["text"],
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
            "contextWindow": 131072,
            "maxTokens": 8192,
        }
        if self.api == "openai-completions":
            model["compat"] = {
                "supportsPromptCacheKey": True,
                "supportsStore": False,
                "supportsDeveloperRole": False,
                "maxTokensField": "max_tokens",
                "supportsUsageInStreaming": True,
                "supportsStrictMode": False,
            }
        provider = {
            "baseUrl": order.url if self.protocol == "messages" else order.v1,
            "apiKey": order.key,
            "api": self.api,
            "models": [model],
        }
        name = f"gateway/{MODEL}"
        defaults = {"workspace": str(order.workdir), "model": {"primary": name}, "models": {name: {}}}
        return {
            "agents": {"defaults": defaults},
            "models": {"mode": "replace", "providers": {"gateway": provider}},
            "plugins": {"enabled": False},
        }


# In two of its adapters a message of its own (BEGIN_OPENCLAW_INTERNAL_CONTEXT) always stands last, before
# each sampled turn: so it moves, and no prompt begins with the one before it.
ADAPTERS = (
    OpenClaw("openclaw-chat", "chat_completions", "openai-completions", prefix_class="broken"),
    OpenClaw("openclaw-responses", "responses", "openai-responses"),
    OpenClaw("openclaw-messages", "messages", "anthropic-messages", prefix_class="broken"),
)
