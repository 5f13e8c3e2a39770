"""Every error raised here, named after the reaction it asks for.

AgentWorldError
├── Retryable            wait and try again; do not commit
│   └── Unavailable      a dependency is away (broker, engine, ClickHouse, full spool)
├── InvalidInput         the caller's fault: answer 4xx, say what to change
├── MalformedEvent       to the dead-letter topic, and on
├── IntegrityError       a delta, digest or reference does not hold; never guess
└── ContractViolation    stop the process: its state is wrong
"""

from __future__ import annotations


class AgentWorldError(Exception):
    """Base of every error raised here."""


class Retryable(AgentWorldError):
    """Wait and try again; do not commit."""


class Unavailable(Retryable):
    """A dependency is away. `retry_after_s` says when another try makes sense."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InvalidInput(AgentWorldError):
    """The caller sent something wrong. `code` is stable, `status` the HTTP status."""

    def __init__(self, message: str, *, code: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class MalformedEvent(AgentWorldError):
    """The bytes are not an event of this topic: to the dead-letter topic, and on.

    `reason` is the dead letter's stable code.
    """

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class IntegrityError(AgentWorldError):
    """A delta's base is missing, a digest differs, or a reference leads elsewhere."""


class ContractViolation(AgentWorldError):
    """A state that must not exist. The process stops rather than spread it."""
