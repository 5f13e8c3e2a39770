"""The acknowledged tail: records the broker has acknowledged, kept for a while.

A broker that may lose its last second gets them again when it comes back. They survive a
kill -9 of the gateway (page cache), which is all that is needed: only the broker's own
crash is covered here, so nothing is fsynced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from agentworld.platform.log import OutRecord
from gateway.frames import encode_frame, read_frames
from gateway.spool import recover_segments, segment_path

_SEGMENTS_PER_SPAN = 4


class Tail:
    """Acknowledged records of the last `keep_ms`, in segment files."""

    def __init__(self, folder: Path, *, keep_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._keep_s = keep_ms / 1000
        self._clock = clock
        self._ended: dict[int, float] = dict.fromkeys(recover_segments(folder, "acked"), float("inf"))
        """Closed segments, with the time of their last record; of an earlier process: kept until replayed."""
        self._number = max(self._ended, default=0)
        self._file = -1
        self._opened = 0.0

    @property
    def replayable(self) -> bool:
        """Whether there is anything to publish again."""
        return bool(self._ended) or self._file >= 0

    def append(self, record: OutRecord) -> None:
        """Keep a record that was just acknowledged."""
        now = self._clock()
        if self._file >= 0 and now - self._opened >= self._keep_s / _SEGMENTS_PER_SPAN:
            self.rotate()
            self._prune(now)
        if self._file < 0:
            self._number += 1
            path = segment_path(self._folder, "acked", self._number)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._opened = now
        os.write(self._file, encode_frame(record))

    def rotate(self) -> None:
        """Close the segment written to; the next record opens another."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._ended[self._number] = self._clock()

    def hold(self) -> None:
        """The broker went away: keep everything until it has been published again."""
        self.rotate()
        self._ended = dict.fromkeys(self._ended, float("inf"))

    def _prune(self, now: float) -> None:
        # Pruned only when a later record was acknowledged: a dead broker acknowledges nothing.
        for number in [n for n, ended in self._ended.items() if ended + self._keep_s < now]:
            self.forget(number)

    def closed(self) -> list[int]:
        """Numbers of the closed segments, oldest first."""
        return sorted(self._ended)

    def read(self, number: int) -> list[OutRecord]:
        """The records of a closed segment, in order."""
        with segment_path(self._folder, "acked", number).open("rb") as file:
            return [record for record, _ in read_frames(file)]

    def forget(self, number: int) -> None:
        """Remove a closed segment."""
        self._ended.pop(number, None)
        segment_path(self._folder, "acked", number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; the records stay for the next start."""
        self.rotate()
