"""The command line: `agentworld …`. Thin; each group lives in `agentworld.commands`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from agentworld.commands import batches, demo, dlq, stack
from agentworld.platform.nesting import follow_deep_nesting

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

for _command in (stack.up, stack.down, stack.status, stack.logs, stack.reset, demo.demo):
    app.command()(_command)


def use_servers(
    data_dir: Annotated[
        Path, typer.Option(help="Where a local stack keeps its state; used if one runs.")
    ] = Path(".agentworld"),
) -> None:
    """Servers come from `AGENTWORLD_KAFKA_*` and `AGENTWORLD_CLICKHOUSE_*`, else the local stack's."""
    try:
        running = json.loads((data_dir / "stack.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return
    os.environ.setdefault("AGENTWORLD_KAFKA_BOOTSTRAP", running["kafka"])
    os.environ.setdefault("AGENTWORLD_CLICKHOUSE_URL", running["clickhouse"])


app.add_typer(batches.app, name="batches", callback=use_servers)
app.add_typer(dlq.app, name="dlq", callback=use_servers)


def main() -> None:
    """Entry point."""
    follow_deep_nesting()
    app()
