"""Circuit breaker of one engine. Pure: the clock is passed in."""

from __future__ import annotations

from collections.abc import Callable


class Breaker:
    """Closed: calls pass. Open after `failures` in a row: none pass for `open_s`. Then one probes."""

    def __init__(self, *, failures: int, open_s: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def allows(self) -> bool:
        """Whether a call may be sent now."""
        if self._opened_at is None:
            return True
        return not self._probing and self.opens_in_s <= 0

    @property
    def opens_in_s(self) -> float:
        """Seconds until a call may probe the engine; 0 where it may now."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._open_s - self._clock())

    @property
    def state(self) -> str:
        """`closed`, `open` or `half_open`."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._probing or self.opens_in_s <= 0 else "open"

    def began(self) -> None:
        """A call was sent."""
        if self._opened_at is not None:
            self._probing = True

    def answered(self) -> None:
        """The reply has begun: others may call too; one more failure opens again."""
        if self._opened_at is not None:
            self._failures = self._limit - 1
            self._opened_at, self._probing = None, False

    def succeeded(self) -> None:
        """The answer is whole."""
        self._failures, self._opened_at, self._probing = 0, None, False

    def failed(self) -> None:
        """It did not, or with 5xx."""
        self._failures += 1
        if self._limit and (self._probing or self._failures >= self._limit):
            self._opened_at, self._probing = self._clock(), False

    def given_up(self) -> None:
        """The call ended without a word about the engine: its client left."""
        self._probing = False
