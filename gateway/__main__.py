"""`python -m gateway`: serve until SIGTERM, then drain."""

from __future__ import annotations

import sys

import uvloop

from agentworld.contract.errors import AgentWorldError
from agentworld.platform.logs import configure_logging
from agentworld.platform.settings import KafkaSettings
from gateway.service import serve
from gateway.settings import GatewaySettings


def main() -> int:
    """Read the settings once and serve. The exit code."""
    configure_logging("gateway")
    try:
        uvloop.run(serve(GatewaySettings(), KafkaSettings()))
    except AgentWorldError as exc:
        print(f"gateway: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
