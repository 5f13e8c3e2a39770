"""`python -m recipes.quickstart.engine --port P --log FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path

from aiohttp import web

from recipes.quickstart.engine.server import Engine, EngineOptions


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart.engine", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8799, help="0 picks a free one")
    parser.add_argument("--log", type=Path, help="JSONL file for every reply sampled")
    parser.add_argument("--seed", type=int, help="for requests without a seed of their own")
    parser.add_argument("--token-delay-ms", type=float, default=0.0)
    parser.add_argument("--fail-every", type=int, default=0, help="every K-th completion answers 500")
    return parser.parse_args()


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    arguments = _arguments()
    engine = Engine(
        EngineOptions(
            log=arguments.log,
            seed=arguments.seed,
            token_delay_ms=arguments.token_delay_ms,
            fail_every=arguments.fail_every,
        )
    )
    web.run_app(
        engine.app(),
        host=arguments.host,
        port=arguments.port,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=2.0,
    )


if __name__ == "__main__":
    main()
