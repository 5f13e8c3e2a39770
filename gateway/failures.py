"""What went wrong with a call, and how it is told in OpenAI's shape."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import msgspec

from agentworld.contract.errors import AgentWorldError, InvalidInput, Unavailable
from gateway.decompression import ACCEPTED

logger = logging.getLogger(__name__)

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error reply. `code` is stable; `message` says what to do."""

    status: int
    code: str
    message: str
    type: str = ""
    """OpenAI's error type; follows from `status` where empty."""
    param: str | None = None
    """The request field at fault."""
    retry_after: str | None = None
    """Value of the Retry-After header."""

    @classmethod
    def of(cls, error: AgentWorldError) -> Failure:
        """The failure that `error` means to the caller."""
        if isinstance(error, InvalidInput):
            return cls(error.status, error.code, str(error))
        if isinstance(error, Unavailable):
            seconds = max(1, math.ceil(error.retry_after_s))
            return cls(503, "unavailable", str(error), retry_after=str(seconds))
        return cls(500, "internal_error", "the gateway failed; its log says why")

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to this failure."""
        headers = [(b"retry-after", self.retry_after.encode())] if self.retry_after else []
        if self.code == "unsupported_encoding":
            headers.append((b"accept-encoding", ACCEPTED.encode()))
        return headers


def nested_too_deeply() -> InvalidInput:
    """The refusal of a body that no JSON reader follows to its end."""
    return InvalidInput(
        "the request body is nested too deeply: send arrays and objects some hundred levels deep at most",
        code="nested_too_deeply",
    )


def internal_failure(error: Exception) -> Failure:
    """What to tell of an error nobody foresaw; it is logged here."""
    if isinstance(error, RecursionError):
        return Failure.of(nested_too_deeply())
    logger.error("a call failed within the gateway", exc_info=error)
    return Failure.of(AgentWorldError(str(error)))


def error_object(failure: Failure) -> dict[str, dict[str, str | None]]:
    """`{"error": {message, type, code, param}}`."""
    default = _TYPES.get(failure.status, "invalid_request_error" if failure.status < 500 else "server_error")
    return {
        "error": {
            "message": failure.message,
            "type": failure.type or default,
            "code": failure.code,
            "param": failure.param,
        }
    }


def error_body(failure: Failure) -> bytes:
    """The error object as JSON."""
    return msgspec.json.encode(error_object(failure))
