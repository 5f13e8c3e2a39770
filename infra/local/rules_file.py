"""The rules file of a stack, checked before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stream_processors.evaluators.kinds import Judge, evaluator_name
from stream_processors.evaluators.secret import read_secret
from stream_processors.rule_book import RuleBook
from stream_processors.rules import Rules


def check_rules_file(path: Path | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the file has evaluators, so that their process is needed; False without a file.

    Raises `InvalidInput` that names the file, the place and what is wrong, an API key's missing variable too.
    """
    if path is None:
        return False
    book = RuleBook.read(path, Rules())
    for evaluator in book.evaluators:
        if isinstance(evaluator, Judge):
            read_secret(evaluator.api_key_env, environment, whose=evaluator_name(evaluator))
    return bool(book.evaluators)
