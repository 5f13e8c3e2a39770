"""Which servers a command talks to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[Path, typer.Option(help="Where a local stack keeps its state; used if one runs.")]


def use_servers(
    data_dir: DataDir = Path(".agentworld"),
) -> None:
    """Servers come from `AGENTWORLD_KAFKA_*` and `AGENTWORLD_CLICKHOUSE_*`, else the local stack's."""
    try:
        running = json.loads((data_dir / "stack.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return
    os.environ.setdefault("AGENTWORLD_KAFKA_BOOTSTRAP", running["kafka"])
    os.environ.setdefault("AGENTWORLD_CLICKHOUSE_URL", running["clickhouse"])
