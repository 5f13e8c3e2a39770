"""The reader of ready batches: from references back to token-exact trajectories."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator

from agentworld.contract.codec import decode
from agentworld.contract.errors import IntegrityError, InvalidInput, MalformedEvent
from agentworld.contract.events import BatchReady, GroupMember, Place, TrajectorySealed
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batch_archive import BatchArchive
from agentworld.platform.log import LogReader, PlaceReader, Record
from agentworld.platform.resolved import (
    ResolvedBatch,
    ResolvedGroup,
    ResolvedTrajectory,
    resolve_sealed,
)

logger = logging.getLogger(__name__)

Scan = Callable[[], Iterable[Record]]
"""Everything `ready-batches` holds now."""


class BatchReader:
    """Finds batches and resolves them.

    `places` reads `trajectories`, `scan` all of `ready-batches`; `archive` stands in for what
    either no longer holds.
    """

    def __init__(self, places: PlaceReader, scan: Scan, archive: BatchArchive | None = None) -> None:
        self._places = places
        self._scan = scan
        self._archive = archive

    def find(self, batch_id: str) -> BatchReady:
        """The batch of that id. Raises `InvalidInput` (404) where nobody knows it."""
        stored = self._archive.batch(batch_id) if self._archive else None
        if stored is not None:
            return stored
        for batch in _batches(self._scan()):
            if batch.batch_id == batch_id:
                return batch
        raise InvalidInput(
            f"no batch has the id {batch_id!r}: `agentworld batches tail` lists those there are",
            code="unknown_batch",
            status=404,
        )

    def list(self, *, run_id: str | None = None, channel: str | None = None) -> list[BatchReady]:
        """Batches in the log now and in the archive, each once, by run, channel and sequence."""
        found = {batch.batch_id: batch for batch in self._archived(run_id, channel)}
        for batch in _batches(self._scan(), run_id=run_id, channel=channel):
            found[batch.batch_id] = batch
        return sorted(found.values(), key=lambda b: (b.run_id, b.channel, b.sequence))

    def _archived(self, run_id: str | None, channel: str | None) -> Iterable[BatchReady]:
        return self._archive.batches(run_id=run_id, channel=channel) if self._archive else ()

    def resolve(self, batch: BatchReady, *, timeout_s: float = 60.0) -> ResolvedBatch:
        """Every trajectory the batch names, whole; never a part of them.

        Raises `IntegrityError` naming all that is missing or is not what the batch says, and
        `Unavailable` when the broker or ClickHouse does not answer.
        """
        members = [member for group in batch.groups for member in group.members]
        records = self._places.fetch([member.place for member in members], timeout_s=timeout_s)
        problems: list[str] = []
        groups = []
        for group in batch.groups:
            trajectories = []
            for member in group.members:
                try:
                    trajectories.append(self._trajectory(member, records))
                except IntegrityError as exc:
                    problems.append(str(exc))
            groups.append(
                ResolvedGroup(
                    group_id=group.group_id,
                    prompt_id=group.prompt_id,
                    round=group.round,
                    version=group.version,
                    rollouts=group.rollouts,
                    trajectories=tuple(trajectories),
                )
            )
        if problems:
            raise IntegrityError(
                f"batch {batch.batch_id}: {len(problems)} of {len(members)} trajectories cannot be "
                f"resolved: {'; '.join(problems)}"
            )
        return ResolvedBatch(event=batch, groups=tuple(groups))

    def _trajectory(self, member: GroupMember, records: dict[tuple[int, int], Record]) -> ResolvedTrajectory:
        place = member.place
        try:
            return _from_log(records.get((place.partition, place.offset)), member)
        except IntegrityError as exc:
            # A broker that lost its tail may hold another record at this offset; the sink has the
            # one that was meant, if anyone has.
            stored = self._archive and self._archive.trajectory(member)
            if stored:
                return stored
            archive = "not in ClickHouse either" if self._archive else "no ClickHouse to look in"
            raise IntegrityError(f"{exc}; {archive}") from exc


def tail(
    reader: LogReader,
    *,
    run_id: str | None = None,
    channel: str | None = None,
    stop: threading.Event | None = None,
    timeout_s: float = 1.0,
) -> Iterator[BatchReady]:
    """Batches as they come, until `stop` is set. `reader` reads `ready-batches` in the caller's group.

    Nothing is committed here: `reader.commit()`, called once the effect of a batch is durable and
    before the next is taken, covers exactly the batches taken so far.
    """
    while stop is None or not stop.is_set():
        yield from _batches(reader.poll(max_records=1, timeout_s=timeout_s), run_id=run_id, channel=channel)


def _batches(
    records: Iterable[Record], *, run_id: str | None = None, channel: str | None = None
) -> Iterator[BatchReady]:
    for record in records:
        try:
            batch: BatchReady = decode(READY_BATCHES, record.value)
        except MalformedEvent as exc:
            # The sink puts it on the dead-letter topic.
            logger.warning("passed over %s/%d@%d: %s", record.topic, record.partition, record.offset, exc)
            continue
        if run_id in (None, batch.run_id) and channel in (None, batch.channel):
            yield batch


def _from_log(record: Record | None, member: GroupMember) -> ResolvedTrajectory:
    where = _where(member.place)
    if record is None:
        raise IntegrityError(f"trajectory {member.trajectory_id}: {where} is no longer in the log")
    try:
        event = decode(TRAJECTORIES, record.value)
    except MalformedEvent as exc:
        raise IntegrityError(f"trajectory {member.trajectory_id}: {where} is malformed: {exc}") from exc
    if not isinstance(event, TrajectorySealed) or event.trajectory_id != member.trajectory_id:
        raise IntegrityError(f"trajectory {member.trajectory_id}: {where} holds another event")
    return resolve_sealed(event, member)


def _where(place: Place) -> str:
    return f"{place.topic}/{place.partition}@{place.offset}"
