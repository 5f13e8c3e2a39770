"""Failures in Anthropic's shape and words."""

from __future__ import annotations

import re

import msgspec

from gateway.failures import Failure

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_LIMIT = re.compile(r"(?:maximum context length (?:is|of)|context length) \(?(\d+)")
_PROMPT = re.compile(
    r"(?:request has|prompt contains(?: at least)?|input \() ?(\d+)"
    r"|(\d+)(?: tokens)? (?:in|from) the (?:input )?messages"
)
_OUTPUT = re.compile(
    r"requested (\d+) output|(\d+) in the completion|is too large: (\d+)|(\d+) tokens for the completion"
)
_BOTH = re.compile(r"requested (\d+) tokens")
"""How vLLM and SGLang say that a prompt, or the prompt and the answer asked for, do not fit."""


def error_object(failure: Failure) -> dict[str, object]:
    """`{"type": "error", "error": {type, message}}`; the field at fault stands in the message."""
    default = "invalid_request_error" if failure.status < 500 else "api_error"
    message = _too_long(failure.message) or failure.message
    if failure.param and failure.param not in message:
        message = f"`{failure.param}`: {message}"
    kind = _TYPES.get(failure.status, default)
    return {"type": "error", "error": {"type": kind, "message": message}}


def anthropic_error(failure: Failure) -> bytes:
    """The error object as JSON."""
    return msgspec.json.encode(error_object(failure))


def _too_long(message: str) -> str | None:
    """Anthropic's words where something does not fit: clients that read them compact, or ask for less."""
    limit = _number(_LIMIT, message)
    if limit is None:
        return None
    prompt, output = _number(_PROMPT, message), _number(_OUTPUT, message)
    if prompt is not None and output is not None and prompt < limit:
        return (
            f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {limit}, "
            "decrease input length or `max_tokens` and try again"
        )
    prompt = prompt or _number(_BOTH, message)
    return None if prompt is None else f"prompt is too long: {prompt} tokens > {limit} maximum"


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return next((int(group) for group in found.groups() if group), None) if found else None
