"""Dead letters back onto the topics they came from, and the record that they were.

A replay is recorded by a marker on the dead-letter topic itself, in the letter's own partition: it expires
after the letter, and a broker that loses its tail or the topic never keeps the marker of a letter it lost.
The marker is written once the repeated record is acknowledged. A crash in between repeats the record at the
next replay, which changes nothing: events have ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agentworld.contract.codec import decode
from agentworld.contract.errors import AgentWorldError, MalformedEvent, Unavailable
from agentworld.contract.events import Place
from agentworld.platform.dead_letter_reader import LETTERED_TOPICS, DeadLetter, LetterLog, place_text
from agentworld.platform.dead_letters import REPLAYED, REPLAYED_FROM, REPLAYED_TO
from agentworld.platform.log import OutRecord, Publisher, Record

State = Literal["replayed", "would_replay", "already_replayed", "refused", "failed", "not_recorded"]

_MAX_CHUNK_BYTES = 64 * 1024 * 1024
_MAX_CHUNK_LETTERS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one letter; `detail` says where to, or why not."""

    letter: DeadLetter
    state: State
    detail: str


def repeated(letter: DeadLetter, record: Record) -> OutRecord:
    """The original record: key, value and headers as they were, and where it is repeated from.

    A keyed record goes where its key belongs, a keyless one into the partition it came from.
    """
    origin = dict(record.headers).get("dlq-partition", b"")
    return OutRecord(
        topic=letter.spec.name,
        key=record.key,
        value=record.value or b"",
        headers=(
            *((name, value) for name, value in record.headers if not name.startswith("dlq-")),
            (REPLAYED_FROM, letter.name.encode()),
        ),
        partition=int(origin) if record.key is None and origin.isdigit() else None,
    )


def marker(letter: DeadLetter, to: str) -> OutRecord:
    """What says on the dead-letter topic that `letter` was replayed."""
    return OutRecord(
        topic=letter.place.topic,
        key=None,
        value=b"",
        headers=((REPLAYED, letter.name.encode()), (REPLAYED_TO, to.encode())),
        partition=letter.place.partition,
    )


async def replay(
    log: LetterLog,
    letters: Sequence[DeadLetter],
    publisher: Publisher | None,
    *,
    again: bool = False,
    force: bool = False,
) -> AsyncIterator[Outcome]:
    """Replay the letters, topic by topic, in this order; without a publisher, say what would be done.

    `again`: also those replayed before. `force`: also those that do not decode. Ends early, without
    outcomes for the rest, when the broker acknowledges no more. Raises `Unavailable` when it cannot be read.
    """
    for letter in letters:
        if letter.replayed and not again:
            yield Outcome(letter, "already_replayed", f"to {letter.replayed.to}")
    wanted = [letter for letter in letters if again or not letter.replayed]
    for chunk in _chunks(sorted(wanted, key=lambda letter: LETTERED_TOPICS.index(letter.spec))):
        places = [letter.place for letter in chunk]
        records = await asyncio.to_thread(log.fetch, chunk[0].spec, places)
        sendable = []
        for letter in chunk:
            record = records.get((letter.place.partition, letter.place.offset))
            if problem := _problem(letter, record, force=force):
                yield Outcome(letter, "refused", problem)
            elif record is not None:
                sendable.append((letter, repeated(letter, record)))
        if publisher is None:
            for letter, out in sendable:
                yield Outcome(letter, "would_replay", f"to {out.topic}")
            continue
        away = False
        for outcome, is_away in await _send(publisher, sendable):
            away = away or is_away
            yield outcome
        if away:
            return


def _problem(letter: DeadLetter, record: Record | None, *, force: bool) -> str | None:
    if record is None:
        return "it expired meanwhile"
    try:
        decode(letter.spec, record.value)
    except MalformedEvent as exc:
        return None if force else f"{exc} (--force replays it as it is)"
    return None


async def _send(
    publisher: Publisher, sendable: Sequence[tuple[DeadLetter, OutRecord]]
) -> list[tuple[Outcome, bool]]:
    # All are handed over before the first is awaited, which keeps their order within a partition.
    sent = await asyncio.gather(*(_tried(publisher, out) for _, out in sendable))
    targets = [_target(result, out) for result, (_, out) in zip(sent, sendable, strict=True)]
    done = [
        (letter, to)
        for (letter, _), to in zip(sendable, targets, strict=True)
        if not isinstance(to, Exception)
    ]
    marked = iter(await asyncio.gather(*(_tried(publisher, marker(letter, to)) for letter, to in done)))
    outcomes = []
    for (letter, _), to in zip(sendable, targets, strict=True):
        if isinstance(to, Exception):
            outcomes.append((Outcome(letter, "failed", str(to)), isinstance(to, Unavailable)))
            continue
        mark = next(marked)
        if isinstance(mark, AgentWorldError):
            detail = f"to {to}, but that could not be recorded: {mark}"
            outcomes.append((Outcome(letter, "not_recorded", detail), isinstance(mark, Unavailable)))
        else:
            outcomes.append((Outcome(letter, "replayed", f"to {to}"), False))
    return outcomes


async def _tried(publisher: Publisher, record: OutRecord) -> Place | AgentWorldError | None:
    try:
        return await publisher.publish(record)
    except AgentWorldError as exc:
        return exc


def _target(result: Place | AgentWorldError | None, out: OutRecord) -> str | AgentWorldError:
    if isinstance(result, Place):
        return place_text(result)
    return result or out.topic


def _chunks(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Runs of letters of one topic that fit in memory."""
    chunk: list[DeadLetter] = []
    size_bytes = 0
    for letter in letters:
        if chunk and (
            letter.spec is not chunk[0].spec
            or size_bytes + letter.value_bytes > _MAX_CHUNK_BYTES
            or len(chunk) == _MAX_CHUNK_LETTERS
        ):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(letter)
        size_bytes += letter.value_bytes
    if chunk:
        yield chunk
