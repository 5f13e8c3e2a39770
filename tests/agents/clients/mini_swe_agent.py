"""mini-swe-agent: chat completions without streaming, through litellm."""

from __future__ import annotations

from dataclasses import dataclass

from tests.agents.clients.base import MODEL, Launch, Order, WireProtocol, python
from tests.agents.comparison import PrefixClass


@dataclass(frozen=True, slots=True)
class MiniSweAgent:
    """`mini`, with its standard configuration and our address."""

    name: str = "mini-swe-agent"
    protocol: WireProtocol = "chat_completions"
    stream: bool = False
    prefix_class: PrefixClass = "exact"

    def launch(self, order: Order) -> Launch:
        """`openai/` before the model name makes litellm use the address as it is."""
        argv = python(
            *("-m", "minisweagent.run.mini", "--yolo", "--exit-immediately"),
            *("--model", f"openai/{MODEL}", "--task", order.task.prompt),
            *("--config", "mini.yaml", "--config", f"model.model_kwargs.api_base={order.v1}"),
            *("--output", str(order.home / "trajectory.json")),
        )
        env = {
            "OPENAI_API_KEY": order.key,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_GLOBAL_CONFIG_DIR": str(order.home / ".mini"),
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        return Launch(argv, env)
