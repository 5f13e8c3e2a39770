"""`agentworld up|down|status|logs|reset`: the stack on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agentworld.contract.errors import AgentWorldError

if TYPE_CHECKING:
    from infra.local.state import StackState

_OWNED = (
    *("broker-embedded", "broker-apache", "clickhouse", "processors", "spool", "logs"),
    *("stack.json", "stack.lock"),
)
"""What a stack keeps in its data directory; nothing else is ever deleted."""

DataDir = Annotated[Path, typer.Option(help="Data, logs and the state file; one stack per directory.")]
_DATA_DIR = Path(".agentworld")


class Broker(StrEnum):
    """Which broker to start."""

    EMBEDDED = "embedded"
    APACHE = "apache"


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except AgentWorldError as exc:
        typer.echo(f"error: {exc}", err=True)
        raise typer.Exit(1) from exc
    except ModuleNotFoundError as exc:
        typer.echo(f"error: {exc.name} is missing: pip install 'agentworld[demo]'", err=True)
        raise typer.Exit(1) from exc


def up(
    data_dir: DataDir = _DATA_DIR,
    broker: Annotated[Broker, typer.Option(help="apache needs Java 17 and Maven.")] = Broker.EMBEDDED,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", envvar="AGENTWORLD_KAFKA_BOOTSTRAP", help="Use this broker; start none."
        ),
    ] = None,
    clickhouse: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="AGENTWORLD_CLICKHOUSE_URL", help="Use this ClickHouse; start none."
        ),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="AGENTWORLD_GATEWAY_UPSTREAM_URL",
            help="The engine's OpenAI-compatible base URL, e.g. http://127.0.0.1:8000/v1.",
        ),
    ] = None,
    gateways: Annotated[int, typer.Option(min=1, max=16)] = 1,
    processors: Annotated[int, typer.Option(min=1, max=16)] = 1,
    rules: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="AGENTWORLD_PROCESSORS_RULES_FILE",
            help="Rules of each run (TOML; docs/rules.md, infra/rules.example.toml).",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The gateway's, where it is free.")] = 8700,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running in the background.")
    ] = False,
) -> None:
    """Start broker, ClickHouse, gateway, stream processors and sink; Ctrl-C stops them."""
    console = Console()
    with _clear_errors():
        from infra.local import foreground  # noqa: PLC0415
        from infra.local.options import StackOptions  # noqa: PLC0415
        from infra.local.rules_file import check_rules_file  # noqa: PLC0415
        from infra.local.table import print_status  # noqa: PLC0415

        check_rules_file(rules)
        options = StackOptions(
            data_dir=data_dir,
            broker=broker.value,
            kafka=kafka,
            clickhouse=clickhouse,
            upstream_url=upstream,
            gateways=gateways,
            processors=processors,
            rules=rules.absolute() if rules else None,
            gateway_port=port,
        )
        if detach:
            with console.status("Starting …"):
                state = foreground.detach(options)
            print_status(state, _problems(state), console)
            console.print("It runs in the background. `agentworld down` stops it.")
            return
        waiting = console.status("Starting …")
        waiting.start()

        def ready(stack: object) -> None:
            waiting.stop()
            state = stack.state()  # type: ignore[attr-defined]
            print_status(state, {}, console)
            console.print("Ctrl-C stops it.")

        try:
            foreground.run_until_stopped(options, on_ready=ready)
        finally:
            waiting.stop()
        console.print("Stopped.")


def down(data_dir: DataDir = _DATA_DIR) -> None:
    """Stop the stack in order, or what a killed one has left running."""
    with _clear_errors():
        from infra.local import foreground  # noqa: PLC0415

        stopped = foreground.take_down(data_dir)
    typer.echo(f"Stopped: {', '.join(stopped)}." if stopped else f"Nothing runs in {data_dir}.")


def status(
    data_dir: DataDir = _DATA_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show every process; exit code 0 when all are able to work."""
    with _clear_errors():
        from infra.local.state import is_running, read_state  # noqa: PLC0415
        from infra.local.table import print_status  # noqa: PLC0415

        state = read_state(data_dir)
        running = is_running(data_dir)
        if state is None or not running:
            left = [p.name for p in state.processes if p.is_alive] if state else []
            typer.echo(f"Nothing runs in {data_dir}. `agentworld up` starts a stack.", err=True)
            if left:
                typer.echo(
                    f"Left by a killed supervisor: {', '.join(left)}; `agentworld down` ends them.", err=True
                )
            raise typer.Exit(1)
        problems = _problems(state)
        if as_json:
            typer.echo(json.dumps(state.model_dump(mode="json") | {"problems": problems}, indent=2))
        else:
            print_status(state, problems, Console())
    raise typer.Exit(1 if problems else 0)


def _problems(state: StackState) -> dict[str, str]:
    from infra.local.health import health_problem  # noqa: PLC0415
    from infra.local.probes import broker_problem  # noqa: PLC0415

    probes: dict[str, Callable[[str], str | None]] = {"broker": broker_problem, "clickhouse": lambda _: None}
    found = {}
    for process in state.processes:
        if not process.is_alive:
            found[process.name] = process.state if process.state == "given up" else "not running"
        elif problem := probes.get(process.name, health_problem)(process.url):
            found[process.name] = problem
    return found


def logs(
    name: Annotated[str | None, typer.Argument(help="A process, e.g. gateway; default: all.")] = None,
    data_dir: DataDir = _DATA_DIR,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0)] = 50,
) -> None:
    """Show the logs of the processes."""
    with _clear_errors():
        from infra.local import log_files  # noqa: PLC0415

    paths = sorted((data_dir / "logs").glob("*.log"))
    if name is not None:
        paths = [path for path in paths if path.stem == name]
    if not paths:
        known = ", ".join(sorted(path.stem for path in (data_dir / "logs").glob("*.log"))) or "none"
        typer.echo(
            f"error: no log of {name or 'any process'} in {data_dir / 'logs'}; there are: {known}", err=True
        )
        raise typer.Exit(1)
    width = max(len(path.stem) for path in paths)

    def show(path: Path, line: str) -> None:
        typer.echo(line if name else f"{path.stem:<{width}} | {line}")

    for path in paths:
        for line in log_files.last_lines(path, lines):
            show(path, line)
    if follow:
        try:
            for path, line in log_files.follow(paths):
                show(path, line)
        except KeyboardInterrupt:
            return


def reset(
    data_dir: DataDir = _DATA_DIR,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete all data and logs of a stopped stack."""
    with _clear_errors():
        from infra.local.state import is_running  # noqa: PLC0415

        if is_running(data_dir):
            raise AgentWorldError("the stack is running: stop it first with `agentworld down`")
    owned = [data_dir / entry for entry in _OWNED if (data_dir / entry).exists()]
    if not owned:
        typer.echo(f"Nothing to delete in {data_dir}.")
        return
    if not yes:
        typer.confirm(f"Delete {', '.join(path.name for path in owned)} in {data_dir}?", abort=True)
    with _clear_errors():
        from infra.local.foreground import take_down  # noqa: PLC0415

        take_down(data_dir)
    for path in owned:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    typer.echo(f"Deleted {', '.join(path.name for path in owned)}.")
