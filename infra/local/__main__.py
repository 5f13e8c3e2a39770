"""`python -m infra.local OPTIONS_JSON`: a stack until SIGTERM; what `agentworld up --detach` starts."""

from __future__ import annotations

import sys

from agentworld.contract.errors import AgentWorldError
from agentworld.platform.logs import configure_logging
from infra.local.foreground import run_until_stopped
from infra.local.options import StackOptions


def main() -> int:
    """Run it. The exit code."""
    configure_logging("stack")
    options = StackOptions.model_validate_json(sys.argv[1])
    try:
        run_until_stopped(options, on_ready=lambda _: None)
    except AgentWorldError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
