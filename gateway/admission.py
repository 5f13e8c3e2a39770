"""How many calls one caller may have under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.failures import Failure

_RETRY_AFTER_S = "1"


class TooManyCalls(Exception):
    """The caller has as many calls under way as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.failure = Failure(
            429,
            "too_many_calls",
            f"{limit} calls of this key are under way: wait for one to end, or raise "
            "AGENTWORLD_GATEWAY_MAX_CALLS_PER_KEY",
            retry_after=_RETRY_AFTER_S,
        )


class Admission:
    """Counts calls by caller; `limit` 0 lets all in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    @contextmanager
    def admitted(self, key: Callable[[], str]) -> Iterator[None]:
        """A call of the caller `key()` is under way within the block. Raises `TooManyCalls`."""
        if not self._limit:
            yield
            return
        caller = key()
        if self._open[caller] >= self._limit:
            raise TooManyCalls(self._limit)
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]
