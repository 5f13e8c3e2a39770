"""OpenAI's Codex CLI: Responses, always streaming."""

from __future__ import annotations

from dataclasses import dataclass

from tests.agents.clients.base import MODEL, Launch, Order, WireProtocol, cli
from tests.agents.comparison import PrefixClass

_CONFIG = """\
model = "{model}"
model_provider = "gateway"
web_search = "disabled"
check_for_update_on_startup = false
model_context_window = 131072
model_auto_compact_token_limit = 120000
model_reasoning_summary = "none"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[analytics]
enabled = false
[features]
multi_agent = false
goals = false
plugins = false
apps = false
tool_search = false
image_generation = false
skill_search = false
[skills]
include_instructions = false
[model_providers.gateway]
name = "gateway"
base_url = "{url}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
stream_idle_timeout_ms = 60000
"""


@dataclass(frozen=True, slots=True)
class Codex:
    """`codex exec`. What tools it offers depends on the model's name."""

    name: str
    model: str
    protocol: WireProtocol = "responses"
    stream: bool = True
    prefix_class: PrefixClass = "exact"

    def launch(self, order: Order) -> Launch:
        """Configured by `$CODEX_HOME/config.toml`."""
        codex_home = order.home / ".codex"
        codex_home.mkdir()
        (codex_home / "config.toml").write_text(_CONFIG.format(model=self.model, url=order.v1))
        argv = [cli("codex"), "exec", "--skip-git-repo-check", "-C", str(order.workdir), order.task.prompt]
        return Launch(argv, {"CODEX_HOME": str(codex_home), "GATEWAY_KEY": order.key})


MODELS = (
    # A name it does not know: function tools alone.
    Codex("codex", MODEL),
    # A name it knows: a freeform `apply_patch` beside them.
    Codex("codex-freeform", "gpt-5.5"),
)
