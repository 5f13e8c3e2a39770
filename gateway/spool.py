"""The spool: records fsynced on local disk while the broker is away, in order.

Segment files of frames in one folder. Appends are committed in groups: one fsync for all
that arrived during the one before. A segment is removed once everything in it has been
published; what is left at a start is read again from its first record, since repetition
is harmless and loss is not.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from agentworld.contract.errors import ContractViolation, Unavailable
from agentworld.platform.log import OutRecord
from gateway.frames import encode_frame, is_torn, read_frames, sound_bytes

logger = logging.getLogger(__name__)

T = TypeVar("T")

Position = tuple[int, int]
"""Segment number, and the offset in it after a record."""

_SEGMENT_BYTES = 16 * 1024 * 1024


def segment_path(folder: Path, prefix: str, number: int) -> Path:
    """File of a numbered segment; names sort in order."""
    return folder / f"{prefix}-{number:012d}.log"


def recover_segments(folder: Path, prefix: str) -> dict[int, int]:
    """Whole-frame bytes by segment number. Torn tails are cut; damaged segments are also set aside."""
    sizes: dict[int, int] = {}
    for path in sorted(folder.glob(f"{prefix}-*.log")):
        sound, size = sound_bytes(path), path.stat().st_size
        if sound < size:
            if is_torn(path, sound):
                logger.warning("%s: cut an unfinished write of %d bytes", path, size - sound)
            else:
                aside = path.with_suffix(".damaged")
                shutil.copyfile(path, aside)
                logger.error("%s: damaged after byte %d; the whole file is kept as %s", path, sound, aside)
            os.truncate(path, sound)
        if sound:
            sizes[int(path.stem.rsplit("-", 1)[1])] = sound
        else:
            path.unlink()
    return sizes


class Spool:
    """Durable first-in first-out queue of records, bounded in bytes. Use from one event loop."""

    def __init__(self, folder: Path, *, max_bytes: int, segment_bytes: int = _SEGMENT_BYTES) -> None:
        """Take the folder for this process and recover what an earlier one left.

        Raises `ContractViolation` where another process holds the folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(self._lock)
            raise ContractViolation(
                f"spool folder {folder} is in use by another gateway: give each its own "
                "AGENTWORLD_GATEWAY_INSTANCE or AGENTWORLD_GATEWAY_SPOOL_DIR"
            ) from exc
        self._sizes = recover_segments(folder, "pending")
        self._written = max(self._sizes, default=0)
        """Number of the segment written to last."""
        self._file = -1
        self._read: Position = (min(self._sizes, default=self._written + 1), 0)
        self._drained = self._read
        self._arriving: list[tuple[bytes, asyncio.Future[None]]] = []
        self._arriving_bytes = 0
        self._committer: asyncio.Task[None] | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="spool")

    @property
    def pending_bytes(self) -> int:
        """Bytes that are here and not yet drained, arriving ones included."""
        drained_segment, drained = self._drained
        held = sum(size for number, size in self._sizes.items() if number >= drained_segment)
        return held - (drained if drained_segment in self._sizes else 0) + self._arriving_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that `read` has not handed out yet, arriving ones included."""
        segment, offset = self._read
        held = sum(size for number, size in self._sizes.items() if number >= segment)
        return held - (offset if segment in self._sizes else 0) + self._arriving_bytes

    @property
    def full(self) -> bool:
        """Whether even a small record would be refused."""
        return self.pending_bytes + 4096 > self._max_bytes

    def refusal(self) -> Unavailable:
        """What a caller is told whose record finds no room."""
        return Unavailable(
            f"the broker is away and the spool is full ({self._max_bytes} bytes in {self.folder}): "
            "bring the broker back, or raise AGENTWORLD_GATEWAY_SPOOL_MAX_BYTES; "
            "nothing was recorded, try again",
            retry_after_s=5.0,
        )

    async def append(self, record: OutRecord) -> None:
        """Return once the record is fsynced. Raises `Unavailable` when full or the disk fails."""
        frame = encode_frame(record)
        if self.pending_bytes + len(frame) > self._max_bytes:
            raise self.refusal()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arriving.append((frame, done))
        self._arriving_bytes += len(frame)
        if self._committer is None or self._committer.done():
            self._committer = asyncio.create_task(self._commit())
        await asyncio.shield(done)

    async def _commit(self) -> None:
        while self._arriving:
            group, self._arriving = self._arriving, []
            size = sum(len(frame) for frame, _ in group)
            failure: Unavailable | None = None
            try:
                number, end = await self._on_disk(self._write, [frame for frame, _ in group])
                self._sizes[number] = end
            except OSError as exc:
                logger.exception("spool write failed in %s", self.folder)
                failure = Unavailable(
                    f"the broker is away and the spool cannot be written: {exc.strerror}. "
                    f"Check the disk under {self.folder}; nothing was recorded, try again",
                    retry_after_s=5.0,
                )
            self._arriving_bytes -= size
            for _, done in group:
                if not done.done():
                    done.set_exception(failure) if failure else done.set_result(None)

    def _write(self, frames: list[bytes]) -> Position:
        start = self._sizes.get(self._written, 0)
        if self._file < 0 or start >= self._segment_bytes:
            self._next_segment()
            start = 0
        try:
            os.truncate(self._file, start)
            view = memoryview(b"".join(frames))
            offset = start
            while view:
                count = os.pwrite(self._file, view, offset)
                view, offset = view[count:], offset + count
            os.fdatasync(self._file)
        except OSError:
            # After a failed fsync the kernel may drop the pages: never write on in this file.
            os.ftruncate(self._file, start)
            os.close(self._file)
            self._file = -1
            raise
        return self._written, offset

    def _next_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._written += 1
        path = segment_path(self.folder, "pending", self._written)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    async def settle(self) -> None:
        """Wait until nothing is arriving."""
        while self._committer is not None and not self._committer.done():
            await asyncio.shield(self._committer)

    async def read(self, limit_bytes: int) -> list[tuple[OutRecord, Position]]:
        """The next records in order, about `limit_bytes` of them; empty when all were handed out."""
        segment, offset = self._read
        while offset >= self._sizes.get(segment, 0):
            later = [number for number in self._sizes if number > segment]
            if not later:
                return []
            segment, offset = min(later), 0
        end = self._sizes[segment]
        batch = await self._on_disk(self._load, segment, offset, end, limit_bytes)
        self._read = batch[-1][1]
        return batch

    def _load(self, segment: int, offset: int, end: int, limit: int) -> list[tuple[OutRecord, Position]]:
        batch = []
        with segment_path(self.folder, "pending", segment).open("rb") as file:
            file.seek(offset)
            for record, after in read_frames(file):
                batch.append((record, (segment, after)))
                if after >= end or after - offset >= limit:
                    return batch
        raise ContractViolation(f"spool segment {segment} in {self.folder} is damaged after byte {offset}")

    def drained(self, position: Position) -> None:
        """Everything up to `position` is published: forget it."""
        self._drained = position
        segment, offset = position
        for number, size in list(self._sizes.items()):
            finished = number < segment or (number == segment and offset >= size)
            if finished and (number != self._written or self._file < 0):
                del self._sizes[number]
                segment_path(self.folder, "pending", number).unlink(missing_ok=True)
        if self._idle() and self._written in self._sizes:
            self._reset()

    def _idle(self) -> bool:
        return not self._arriving_bytes and self.pending_bytes == 0

    def _reset(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        segment_path(self.folder, "pending", self._written).unlink(missing_ok=True)
        self._sizes.clear()
        self._read = self._drained = (self._written + 1, 0)

    def rewind(self) -> None:
        """Hand out again what was read and not drained."""
        self._read = self._drained

    @property
    def refused_path(self) -> Path:
        """Where records lie that the broker refused for good; a file of frames."""
        return self.folder / "refused.log"

    async def set_aside(self, record: OutRecord) -> None:
        """Keep a record that the broker refused for good, so that it blocks nothing and is not lost."""
        await self._on_disk(self._append_refused, encode_frame(record))

    def _append_refused(self, frame: bytes) -> None:
        with self.refused_path.open("ab") as file:
            file.write(frame)
            file.flush()
            os.fsync(file.fileno())

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    async def close(self) -> None:
        """Finish what is arriving and release the folder; what is pending stays for the next start."""
        await self.settle()
        self._disk.shutdown()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self._lock)
