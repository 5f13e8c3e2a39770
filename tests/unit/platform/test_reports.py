"""Tables print what they are given."""

from __future__ import annotations

import io

from rich.console import Console

from agentworld.platform.reports import print_table


def test_square_brackets_in_ids_are_printed_as_they_are() -> None:
    out = io.StringIO()
    print_table("run [/a]", ("id",), [("[red]x[/nope]",), (None,)], console=Console(file=out, width=80))
    assert "run [/a]" in out.getvalue()
    assert "[red]x[/nope]" in out.getvalue()
    assert "–" in out.getvalue()
