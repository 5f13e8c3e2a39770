"""Errors of a command as one line that says what to do, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from agentworld.contract.errors import AgentWorldError, InvalidInput


def plain_errors(
    *, invalid_input: int = 1, interrupted: int = 0
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command. `invalid_input` and `interrupted` (Ctrl-C) are exit codes; other errors give 1."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(*args: Any, **options: Any) -> None:
            try:
                command(*args, **options)
            except AgentWorldError as exc:
                typer.echo(f"error: {exc}", err=True)
                raise typer.Exit(invalid_input if isinstance(exc, InvalidInput) else 1) from None
            except RecursionError:
                typer.echo("error: the event is nested too deeply to be printed", err=True)
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                raise typer.Exit(interrupted) from None
            except BrokenPipeError:
                sys.stderr.close()
                raise typer.Exit(0) from None

        return wrapped

    return decorate
