"""OpenCode: chat completions, streaming, through the AI SDK's OpenAI-compatible provider."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.agents.clients.base import MODEL, Launch, Order, WireProtocol, cli
from tests.agents.comparison import PrefixClass

_SMALL = "scripted-small"


@dataclass(frozen=True, slots=True)
class OpenCode:
    """`opencode run`; titles are asked of a second, small model."""

    name: str = "opencode"
    protocol: WireProtocol = "chat_completions"
    stream: bool = True
    prefix_class: PrefixClass = "exact"

    def launch(self, order: Order) -> Launch:
        """Configured by `$OPENCODE_CONFIG`."""
        config = order.home / "opencode.json"
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "gateway",
            "options": {"baseURL": order.v1, "apiKey": order.key},
            "models": {
                MODEL: {
                    "name": MODEL,
                    "tool_call": True,
                    "reasoning": True,
                    "limit": {"context": 131072, "output": 8192},
                },
                _SMALL: {"name": _SMALL},
            },
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": f"gateway/{MODEL}",
            "small_model": f"gateway/{_SMALL}",
            "provider": {"gateway": provider},
        }
        config.write_text(json.dumps(settings, indent=2))
        env = {
            "OPENCODE_CONFIG": str(config),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        return Launch([cli("opencode"), "run", "--auto", "--print-logs", order.task.prompt], env)
