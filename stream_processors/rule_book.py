"""The file in which a deployment states its rules, run by run (TOML; `docs/rules.md`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from agentworld.contract.errors import InvalidInput
from stream_processors.evaluators.kinds import AnyEvaluator
from stream_processors.rules import Rules, Section

_SECTIONS = {"seal", "group", "reward", "batch", "curation", "evaluator"}


class RunPage(Section, frozen=True, kw_only=True):
    """One `[[run]]` of the file: which runs it is for, and what is different there."""

    match: str
    """Run ids, as a glob: `math-*`."""
    channel: str = "*"
    """Channels, as a glob."""
    rules: Mapping[str, Any] = {}
    """Sections by name, as in the file."""


class RuleBook:
    """The rules of every run. Later pages of the file win over earlier ones, all over `[default]`."""

    def __init__(self, base: Rules, default: Mapping[str, Any], pages: tuple[RunPage, ...]) -> None:
        """`base` holds what the file does not say. Raises `InvalidInput` where a page makes no sense."""
        self._pages = pages
        self._default: dict[str, Any] = _merged(msgspec.to_builtins(base), default)
        self._known: dict[tuple[bool, ...], Rules] = {}
        self._by_name: dict[tuple[str, str], Rules] = {}
        possible = [_converted(self._default, "[default]")]
        for number, page in enumerate(pages, 1):
            where = f"[[run]] number {number} ({page.match})"
            possible.append(_converted(_merged(self._default, page.rules), where))
        self.evaluators: list[AnyEvaluator] = []
        """Each that some run may have, once."""
        for evaluator in (evaluator for rules in possible for evaluator in rules.evaluators):
            if evaluator not in self.evaluators:
                self.evaluators.append(evaluator)

    def of(self, run_id: str, channel: str) -> Rules:
        """The rules of a run's channel. The same object for all to which the same pages apply."""
        found = self._by_name.get((run_id, channel))
        if found is None:
            applies = tuple(
                fnmatchcase(run_id, page.match) and fnmatchcase(channel, page.channel) for page in self._pages
            )
            found = self._known.get(applies)
            if found is None:
                values = self._default
                for page, matches in zip(self._pages, applies, strict=True):
                    values = _merged(values, page.rules) if matches else values
                found = self._known[applies] = _converted(values, f"the rules of run {run_id}")
            if len(self._by_name) < 10_000:
                self._by_name[run_id, channel] = found
        return found

    @classmethod
    def read(cls, path: Path, base: Rules) -> RuleBook:
        """The book in `path`. Raises `InvalidInput` that names the file, the place and what is wrong."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"), base)
        except OSError as exc:
            raise _wrong(f"the rules file {path} cannot be read: {exc.strerror}") from exc
        except (InvalidInput, UnicodeDecodeError) as exc:
            raise _wrong(f"the rules file {path}: {exc}") from exc

    @classmethod
    def parse(cls, text: str, base: Rules) -> RuleBook:
        """The book in `text`. Raises `InvalidInput`."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as exc:
            raise _wrong(f"not TOML: {exc}") from exc
        if unknown := content.keys() - {"default", "run"}:
            raise _wrong(
                f"{', '.join(sorted(unknown))}: the file has one [default] and any number of [[run]] tables"
            )
        pages: list[RunPage] = []
        runs = content.get("run", [])
        if not isinstance(runs, list):
            raise _wrong("run: write [[run]], with two brackets: there may be several")
        for table in runs:
            if not isinstance(table, dict):
                raise _wrong("run: write [[run]] tables, each with the runs that it matches")
            sections = {name: value for name, value in table.items() if name in _SECTIONS}
            head = {name: value for name, value in table.items() if name not in _SECTIONS}
            pages.append(_convert({**head, "rules": sections}, RunPage, f"[[run]] number {len(pages) + 1}"))
        default = content.get("default", {})
        if not isinstance(default, dict):
            raise _wrong("[default]: it is a table with the sections " + ", ".join(sorted(_SECTIONS)))
        if unknown := default.keys() - _SECTIONS:
            raise _wrong(
                f"[default] {', '.join(sorted(unknown))}: the sections are {', '.join(sorted(_SECTIONS))}"
            )
        return cls(base, default, tuple(pages))


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid_rules")


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Sections key by key; a list replaces a list."""
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        merged[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _converted(values: Mapping[str, Any], where: str) -> Rules:
    rules: Rules = _convert(values, Rules, where)
    return rules


def _convert(values: Mapping[str, Any], kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        raise _wrong(f"{where}: {exc}") from exc
