"""What lies on the dead-letter topics, and which of it was replayed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
from confluent_kafka import KafkaException

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.contract.topics import ALL_TOPICS, TopicSpec
from agentworld.platform.dead_letters import REPLAYED, REPLAYED_TO
from agentworld.platform.kafka import admin_client
from agentworld.platform.log import Record
from agentworld.platform.reader import KafkaPlaceReader
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings

LETTERED_TOPICS = tuple(spec for spec in ALL_TOPICS if spec.dead_letters)
"""Topics that have dead letters."""

_PLACE = re.compile(r"(?P<topic>[^/@\s]+)/(?P<partition>\d{1,9})@(?P<offset>\d{1,18})")


class LetterLog(Protocol):
    """The dead-letter topics of a log."""

    def dlq_names(self) -> set[str]:
        """Topics there are, without prefix. Raises `Unavailable`."""
        ...

    def scan(self, spec: TopicSpec) -> Iterable[Record]:
        """All that `spec`'s dead-letter topic holds now, in order per partition. Raises `Unavailable`."""
        ...

    def fetch(self, spec: TopicSpec, places: Sequence[Place]) -> dict[tuple[int, int], Record]:
        """Dead letters of `spec` by (partition, offset); expired ones are absent. Raises `Unavailable`."""
        ...


class KafkaLetterLog:
    """`LetterLog` over Kafka."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    def dlq_names(self) -> set[str]:
        """Names of all topics under the prefix."""
        prefix = self._settings.topic_prefix
        try:
            topics = admin_client(self._settings).list_topics(timeout=10).topics
        except KafkaException as exc:
            raise Unavailable(
                f"no answer from {self._settings.bootstrap}: {exc.args[0].str()}. "
                "Is the broker up (`agentworld status`), and AGENTWORLD_KAFKA_BOOTSTRAP right?"
            ) from exc
        return {name.removeprefix(prefix) for name in topics if name.startswith(prefix)}

    def scan(self, spec: TopicSpec) -> Iterator[Record]:
        """Up to the end as it stands now."""
        return scan_topic(self._settings, spec, dead_letters=True)

    def fetch(self, spec: TopicSpec, places: Sequence[Place]) -> dict[tuple[int, int], Record]:
        """Over a consumer of its own."""
        reader = KafkaPlaceReader(self._settings, replace(spec, name=spec.dlq_name), client_id="dlq")
        try:
            return reader.fetch(places)
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class Replay:
    """That a dead letter was replayed."""

    at_ms: int
    to: str
    """Place of the repeated record, as text."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter without its value, which may be megabytes."""

    spec: TopicSpec
    """The topic it came from."""
    place: Place
    """Where it stands on the dead-letter topic."""
    time_ms: int
    reason: str
    """Stable code; `unknown` where the header is missing."""
    detail: str
    consumer: str
    origin: str | None
    """Place of the original record as text; None where it was not kept."""
    event_type: str | None
    trajectory_id: str | None
    prompt_id: str | None
    value_bytes: int
    replayed: Replay | None = None

    @property
    def name(self) -> str:
        """Its place as people type it."""
        return place_text(self.place)


def place_text(place: Place) -> str:
    """`topic/partition@offset`."""
    return f"{place.topic}/{place.partition}@{place.offset}"


def lettered_topic(name: str) -> TopicSpec:
    """The topic of that name, or whose dead-letter topic has it. Raises `InvalidInput`."""
    for spec in LETTERED_TOPICS:
        if name in (spec.name, spec.dlq_name):
            return spec
    known = ", ".join(spec.name for spec in LETTERED_TOPICS)
    raise InvalidInput(
        f"no topic {name!r} has dead letters; those that have: {known}", code="unknown_topic", status=404
    )


def parse_place(text: str) -> tuple[TopicSpec, Place]:
    """A place on a dead-letter topic. Raises `InvalidInput`."""
    match = _PLACE.fullmatch(text)
    if match is None or not match["topic"].endswith("-dlq"):
        raise InvalidInput(
            f"{text!r} is not the place of a dead letter: it reads like trajectory-events-dlq/0@17, as "
            "`agentworld dlq list` prints it",
            code="bad_place",
        )
    spec = lettered_topic(match["topic"])
    return spec, Place(topic=spec.dlq_name, partition=int(match["partition"]), offset=int(match["offset"]))


def read_letters(log: LetterLog, specs: Sequence[TopicSpec]) -> list[DeadLetter]:
    """All dead letters of these topics, oldest first; topics that do not exist hold none."""
    existing = log.dlq_names()
    letters: list[DeadLetter] = []
    replays: dict[str, Replay] = {}
    for spec in specs:
        if spec.dlq_name not in existing:
            continue
        for record in log.scan(spec):
            headers = dict(record.headers)
            if REPLAYED in headers and "dlq-reason" not in headers:
                to = _text(headers.get(REPLAYED_TO)) or "?"
                replays[_text(headers[REPLAYED]) or ""] = Replay(at_ms=record.timestamp_ms, to=to)
            else:
                letters.append(_letter(spec, record, headers))
    told = [replace(letter, replayed=replays.get(letter.name)) for letter in letters]
    return sorted(told, key=lambda letter: (letter.time_ms, *msgspec.structs.astuple(letter.place)))


def find_letters(letters: Iterable[DeadLetter], places: Iterable[Place]) -> list[DeadLetter]:
    """The letters at these places, each once. Raises `InvalidInput` naming the places that hold none."""
    by_name = {letter.name: letter for letter in letters}
    names = list(dict.fromkeys(map(place_text, places)))
    if unknown := [name for name in names if name not in by_name]:
        raise InvalidInput(
            f"no dead letter stands at {', '.join(unknown)}: it expired or never was; "
            "`agentworld dlq list` prints the places there are",
            code="unknown_place",
            status=404,
        )
    return [by_name[name] for name in names]


class _Named(msgspec.Struct):
    type: Any = None
    trajectory_id: Any = None
    prompt_id: Any = None


_NAMES = msgspec.json.Decoder(_Named)


def _letter(spec: TopicSpec, record: Record, headers: dict[str, bytes]) -> DeadLetter:
    names = _names(record.value)
    topic, partition, offset = (
        _text(headers.get(name)) for name in ("dlq-topic", "dlq-partition", "dlq-offset")
    )
    return DeadLetter(
        spec=spec,
        place=record.place,
        time_ms=record.timestamp_ms,
        reason=_text(headers.get("dlq-reason")) or "unknown",
        detail=_text(headers.get("dlq-detail")) or "",
        consumer=_text(headers.get("dlq-consumer")) or "unknown",
        origin=None if offset is None else f"{topic or spec.name}/{partition or '?'}@{offset}",
        event_type=_text(headers.get("type")) or _string(names.type),
        trajectory_id=_text(headers.get("trajectory_id")) or _string(names.trajectory_id),
        prompt_id=_string(names.prompt_id),
        value_bytes=len(record.value or b""),
    )


def _names(value: bytes | None) -> _Named:
    """What the bytes say of themselves, event of this topic or not."""
    try:
        return _NAMES.decode(value or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Named()


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
