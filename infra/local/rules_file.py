"""The rules file of a stack, checked before anything is started."""

from __future__ import annotations

from pathlib import Path

from stream_processors.rule_book import RuleBook
from stream_processors.rules import Rules


def check_rules_file(path: Path | None) -> None:
    """Raises `InvalidInput` that names the file, the place and what is wrong. None: nothing to check."""
    if path is not None:
        RuleBook.read(path, Rules())
