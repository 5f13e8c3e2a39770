"""`agentworld demo`: the stack, the quickstart recipe, and the proof that its numbers add up."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentworld.contract.errors import AgentWorldError


def demo(
    report: Annotated[Path, typer.Option(help="Where the figures go, as JSON.")] = Path("reports/demo.json"),
    keep_up: Annotated[bool, typer.Option("--keep-up", help="Leave all running until Ctrl-C.")] = False,
    tasks: Annotated[int, typer.Option(min=1, max=10_000, help="Word problems.")] = 16,
    rollouts: Annotated[int, typer.Option(min=1, max=64, help="Rollouts of each.")] = 4,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Rollouts at a time.")] = 8,
    seed: Annotated[int, typer.Option(help="The same seed samples the same tokens.")] = 7,
    data_dir: Annotated[Path, typer.Option(help="Where the stack keeps its data.")] = Path(".agentworld"),
) -> None:
    """Run an agent on word problems through the whole stack, and check every token."""
    try:
        from recipes.quickstart.demo import DemoPlan, run_demo  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        typer.echo(f"The demo needs the package {exc.name}: pip install 'agentworld[demo]'", err=True)
        raise typer.Exit(1) from exc
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = DemoPlan(
        tasks=tasks, rollouts=rollouts, concurrency=concurrency, seed=seed, data_dir=data_dir, report=report
    )
    try:
        sound = run_demo(plan, console, keep_up=keep_up)
    except AgentWorldError as exc:
        console.print(f"[bold red]The demo did not finish:[/] {exc}", highlight=False)
        raise typer.Exit(1) from exc
    raise typer.Exit(0 if sound else 1)
