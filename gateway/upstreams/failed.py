"""What can go wrong between the gateway and an engine, in our words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec

from agentworld.contract.events.trajectory_events import StepStatus
from gateway.callers import without_secret
from gateway.failures import Failure

UNREACHABLE = "upstream_unreachable"


class UpstreamFailed(Exception):
    """The engine gave no usable answer: what the client is told, and how the step is marked."""

    def __init__(self, status: StepStatus, failure: Failure, *, answered: int | None = None) -> None:
        super().__init__(failure.message)
        self.status: StepStatus = status
        self.failure = failure
        self.answered = answered
        """HTTP status of the engine's reply; None where there was none."""

    @property
    def blames_engine(self) -> bool:
        """Whether this counts against the engine's health: no answer, half an answer, or 5xx."""
        return self.answered is None or self.answered >= 500


@contextlib.contextmanager
def told(engine: str) -> Iterator[None]:
    """Turn errors of the connection into `UpstreamFailed`."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
        message = (
            f"the engine `{engine}` cannot be reached ({type(exc).__name__}): start it, or correct its URL "
            "(AGENTWORLD_GATEWAY_UPSTREAM_URL or AGENTWORLD_GATEWAY_UPSTREAMS_FILE)"
        )
        raise UpstreamFailed("failed", Failure(502, UNREACHABLE, message)) from exc
    except TimeoutError as exc:
        message = (
            f"the engine `{engine}` was silent for too long: try again, or raise its timeout "
            "(AGENTWORLD_GATEWAY_UPSTREAM_TIMEOUT_MS, or `timeout_ms` in the upstreams file)"
        )
        raise UpstreamFailed("timed_out", Failure(504, "upstream_timeout", message)) from exc
    except (aiohttp.ClientError, OSError) as exc:
        message = f"the engine `{engine}` broke off its answer ({type(exc).__name__}): try again"
        raise UpstreamFailed("failed", Failure(502, "upstream_broke_off", message)) from exc


async def refused(response: aiohttp.ClientResponse, key: str = "") -> UpstreamFailed:
    """The engine's own error, in OpenAI's shape, with its status and Retry-After; never with `key`."""
    body = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        body = await response.read()
    failure = _error_of(response, body)
    failure = replace(failure, message=without_secret(failure.message, key))
    return UpstreamFailed("failed", failure, answered=response.status)


def _error_of(response: aiohttp.ClientResponse, body: bytes) -> Failure:
    status = response.status if response.status >= 400 else 502
    error: dict[str, Any] = {}
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        parsed = msgspec.json.decode(body)
        if isinstance(parsed, dict):
            error = parsed["error"] if isinstance(parsed.get("error"), dict) else parsed
    message = error.get("message") or error.get("detail") or f"the engine answered {response.status}"
    param = error.get("param")
    return Failure(
        status=status,
        code=str(error.get("code") or "upstream_error"),
        message=str(message)[:2000],
        type=str(error.get("type") or ""),
        param=param if isinstance(param, str) else None,
        retry_after=response.headers.get("Retry-After"),
    )
