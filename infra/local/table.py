"""The status table."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
from rich.console import Console
from rich.table import Table

from infra.local.state import ProcessState, StackState

_NO_ENGINE = (
    "No engine is configured: the gateway captures, but has no model to ask. Stop, and start again with "
    "`agentworld up --upstream URL` (an OpenAI-compatible base URL, e.g. http://127.0.0.1:8000/v1)."
)


def memory_mb(pid: int | None) -> float | None:
    """Resident memory of a process and its children, in MB."""
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(float(member.memory_info().rss) for member in family) / 1e6
    except psutil.NoSuchProcess:
        return None


def print_status(state: StackState, problems: Mapping[str, str], console: Console) -> None:
    """One row per process: state, address, memory, log; then the engine, or how to name one."""
    table = Table(title="AgentWorld", title_justify="left", header_style="bold")
    for column in ("process", "state", "address"):
        table.add_column(column, overflow="fold")
    table.add_column("pid", justify="right")
    table.add_column("MB", justify="right")
    table.add_column("restarts", justify="right")
    for process in reversed(state.processes):
        table.add_row(*_row(process, problems.get(process.name)))
    names = {process.name for process in state.processes}
    if "broker" not in names:
        table.add_row("broker", "external", state.kafka)
    if "clickhouse" not in names:
        table.add_row("clickhouse", "external", state.clickhouse)
    table.add_row("engine", "external" if _engine(state) else "none", _engine(state) or "–")
    console.print(table)
    if not _engine(state):
        console.print(_NO_ENGINE, style="yellow")
    for name, problem in problems.items():
        console.print(f"{name}: {problem}", style="red", highlight=False, markup=False)
    console.print(f"logs: {state.options.data_dir / 'logs'}", highlight=False, soft_wrap=True)


def _engine(state: StackState) -> str | None:
    options = state.options
    return options.environment.get("AGENTWORLD_GATEWAY_UPSTREAM_URL") or options.upstream_url


def _row(process: ProcessState, problem: str | None) -> list[str]:
    shown = "[green]healthy[/]" if problem is None else f"[red]{process.state}[/]"
    if problem is not None and process.state == "running":
        shown = "[yellow]not ready[/]"
    memory = memory_mb(process.pid)
    return [
        process.name,
        shown,
        process.url,
        str(process.pid or "–"),
        "–" if memory is None else f"{memory:.0f}",
        str(process.restarts),
    ]
