"""How `agentworld dlq` prints dead letters."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.pretty import pretty_repr

from agentworld.contract.codec import decode
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.topics import TopicSpec
from agentworld.platform.dead_letter_reader import DeadLetter
from agentworld.platform.log import Record

_SHOWN_DETAIL_CHARS = 60
_SHOWN_BYTES = 4_000
_SHOWN_ITEMS = 12


def row(letter: DeadLetter) -> tuple[str, ...]:
    """The letter in a table: place, time, reason, consumer, event, ids, when replayed, detail cut."""
    detail = letter.detail
    cut = detail if len(detail) <= _SHOWN_DETAIL_CHARS else detail[: _SHOWN_DETAIL_CHARS - 1] + "…"
    cells = (
        letter.name,
        _time(letter.time_ms),
        letter.reason,
        letter.consumer,
        letter.event_type or "–",
        f"{letter.trajectory_id or '–'} / {letter.prompt_id or '–'}",
        _time(letter.replayed.at_ms) if letter.replayed else "–",
        cut,
    )
    return tuple(map(clean, cells))


def letter_as_json(letter: DeadLetter) -> dict[str, Any]:
    """All that is known of the letter but key, headers and value."""
    return {
        "place": letter.name,
        "topic": letter.spec.name,
        "time_ms": letter.time_ms,
        "reason": letter.reason,
        "detail": letter.detail,
        "consumer": letter.consumer,
        "origin": letter.origin,
        "event_type": letter.event_type,
        "trajectory_id": letter.trajectory_id,
        "prompt_id": letter.prompt_id,
        "value_bytes": letter.value_bytes,
        "replayed": letter.replayed and {"at_ms": letter.replayed.at_ms, "to": letter.replayed.to},
    }


def event_in(spec: TopicSpec, record: Record) -> tuple[Any, str | None]:
    """The event as plain values, or why there is none."""
    try:
        decode(spec, record.value)
        # As it was written: with fields that this version does not know.
        return msgspec.json.decode(record.value or b""), None
    except (MalformedEvent, msgspec.DecodeError, RecursionError) as exc:
        return None, str(exc)


def print_letter(letter: DeadLetter, record: Record, event: Any, problem: str | None) -> None:
    """Why it is dead, its headers, and the event, long lists cut, or the bytes."""
    replayed = letter.replayed and f"{_time(letter.replayed.at_ms)} to {letter.replayed.to}"
    for title, text in (
        ("place", letter.name),
        ("time", _time(letter.time_ms)),
        ("reason", letter.reason),
        ("detail", letter.detail),
        ("consumer", letter.consumer),
        ("came from", letter.origin or f"{letter.spec.name}, place not kept"),
        ("replayed", replayed or "no"),
        ("key", _readable(record.key or b"")),
    ):
        typer.echo(f"{title:<10} {clean(text)}")
    typer.echo("headers")
    for header, raw in record.headers:
        typer.echo(f"  {clean(header)}: {clean(_readable(raw))}")
    if problem is None:
        typer.echo("event")
        typer.echo(pretty_repr(_shortened(event), max_width=wide_console().width, max_string=_SHOWN_BYTES))
        return
    value = record.value or b""
    more = f" (the first {_SHOWN_BYTES} shown)" if len(value) > _SHOWN_BYTES else ""
    typer.echo(f"not an event: {clean(problem)}\n{len(value)} bytes{more}")
    typer.echo(clean(_readable(value[:_SHOWN_BYTES])))


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, list):
        more = len(value) - _SHOWN_ITEMS
        return [*map(_shortened, value[:_SHOWN_ITEMS]), *([f"… +{more}"] if more > 0 else [])]
    return value


def _readable(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def clean(text: str) -> str:
    """Without control characters: the bytes come from anywhere, and terminals obey them."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def bytes_as_json(raw: bytes | None) -> Any:
    """Text where it is text, else base64."""
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw or b"").decode()}


def wide_console() -> Console:
    """A console that does not wrap what goes into a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=250)


def _time(unix_ms: int) -> str:
    return datetime.datetime.fromtimestamp(unix_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
