"""The SDKs, each driven by a short script that runs in the clients' own Python environment.

The scripts import nothing of this repository: they are what a user of the SDK would write.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.agents.clients.base import MODEL, Launch, Order, WireProtocol, python
from tests.agents.comparison import PrefixClass

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Sdk:
    """A script called with URL, model, `stream` or `plain`, and the task."""

    name: str
    protocol: WireProtocol
    stream: bool
    script: str
    more: tuple[str, ...] = ()
    """Further arguments of the script."""
    prefix_class: PrefixClass = "exact"

    def launch(self, order: Order) -> Launch:
        """Anthropic's SDK adds `/v1` by itself."""
        url = order.url if self.protocol == "messages" else order.v1
        mode = "stream" if self.stream else "plain"
        env = {
            "OPENAI_API_KEY": order.key,
            "ANTHROPIC_API_KEY": order.key,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        return Launch(python(str(_HERE / self.script), url, MODEL, mode, order.task.prompt, *self.more), env)


SDKS = (
    Sdk("openai-agents-chat", "chat_completions", True, "openai_agents_run.py", ("chat",)),
    Sdk("openai-agents-responses", "responses", True, "openai_agents_run.py", ("responses",)),
    Sdk("openai-sdk-chat", "chat_completions", False, "openai_chat.py"),
    Sdk("openai-sdk-chat-stream", "chat_completions", True, "openai_chat.py"),
    Sdk("openai-sdk-responses", "responses", False, "openai_responses.py"),
    Sdk("openai-sdk-responses-stream", "responses", True, "openai_responses.py"),
    Sdk("anthropic-sdk", "messages", False, "anthropic_messages.py"),
    Sdk("anthropic-sdk-stream", "messages", True, "anthropic_messages.py"),
)
