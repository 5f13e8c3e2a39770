"""Reports: a table for people and `reports/<name>.json` with the same figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def write_report(name: str, figures: Mapping[str, Any], *, directory: Path = Path("reports")) -> Path:
    """Write the figures as JSON; returns the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(figures, indent=2, default=str) + "\n")
    return path


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, console: Console | None = None
) -> None:
    """Print rows under a title; numbers are set right. Cells are printed as they are, brackets too."""
    table = Table(title=Text(title), title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric and rows else "left")
    for row in rows:
        table.add_row(*(Text("–" if cell is None else str(cell)) for cell in row))
    (console or Console()).print(table)
