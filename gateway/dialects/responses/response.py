"""The response object, and how the end of an answer is told."""

from __future__ import annotations

import math
from typing import Any, Literal

from gateway.dialects.responses.call import ResponsesCall
from gateway.dialects.responses.open_items import Status
from gateway.failures import Failure

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
_BROKEN = frozenset({"abort", "error"})


def response_object(
    call: ResponsesCall,
    status: ResponseStatus,
    output: list[dict[str, Any]],
    *,
    usage: dict[str, Any] | None = None,
    error: dict[str, str] | None = None,
    incomplete: str | None = None,
) -> dict[str, Any]:
    """A response. `incomplete` is why it was cut."""
    return {
        "id": call.response_id,
        "object": "response",
        "created_at": call.created_at,
        "status": status,
        "background": False,
        "error": error,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "instructions": None,
        "model": call.model,
        "output": output,
        "previous_response_id": None,
        "store": False,
        "tools": [],
        **call.echo,
        "usage": usage,
    }


def last_item_status(call: ResponsesCall, finish_reason: str | None) -> Status:
    """How the item that was sampled last ended."""
    whole = call.never_incomplete or finish_reason not in _CUT | dict.fromkeys(_BROKEN)
    return "completed" if whole else "incomplete"


def ended_response(
    call: ResponsesCall, finish_reason: str | None, output: list[dict[str, Any]], usage: dict[str, Any] | None
) -> dict[str, Any]:
    """The response at its end, in the status that the engine's finish reason means to this client."""
    if finish_reason in _BROKEN:
        error = {"code": "server_error", "message": "the engine stopped before its answer was complete"}
        return response_object(call, "failed", output, usage=usage, error=error)
    cut = _CUT.get(finish_reason or "")
    if cut is not None and not call.never_incomplete:
        return response_object(call, "incomplete", output, usage=usage, incomplete=cut)
    return response_object(call, "completed", output, usage=usage)


def response_error(failure: Failure) -> dict[str, str]:
    """A failure in the codes that clients act on: what to retry, when, and what not to."""
    message = failure.message
    if failure.code == "context_length_exceeded" or "maximum context length" in message:
        return {"code": "context_length_exceeded", "message": message}
    if failure.status == 429:
        if failure.retry_after is not None and failure.retry_after.isdecimal():
            # Codex reads how long to wait out of the message.
            message += f" Please try again in {math.ceil(int(failure.retry_after))}s."
        return {"code": "rate_limit_exceeded", "message": message}
    return {"code": "server_error" if failure.status >= 500 else "invalid_prompt", "message": message}
