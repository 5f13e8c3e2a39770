"""The command line: `agentworld …`. Thin; each group lives in `agentworld.commands`."""

from __future__ import annotations

import typer

from agentworld.commands import batches, dataset, demo, dlq, replay, stack
from agentworld.commands.servers import use_servers
from agentworld.platform.nesting import follow_deep_nesting

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

for _command in (stack.up, stack.down, stack.status, stack.logs, stack.reset, demo.demo):
    app.command()(_command)


app.command()(replay.replay)
app.add_typer(batches.app, name="batches", callback=use_servers)
app.add_typer(dataset.app, name="dataset", callback=use_servers)
app.add_typer(dlq.app, name="dlq", callback=use_servers)


def main() -> None:
    """Entry point."""
    follow_deep_nesting()
    app()
