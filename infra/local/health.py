"""Asking a service whether it is able to work."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

_MAX_BODY_BYTES = 64 * 1024


def health_problem(url: str, *, timeout_s: float = 2.0) -> str | None:
    """None when `GET <url>/health` answers 200; otherwise the reason in a few words."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        body = response.read(_MAX_BODY_BYTES)
    except (OSError, http.client.HTTPException) as exc:
        return f"no answer: {exc}"
    finally:
        connection.close()
    if response.status == http.HTTPStatus.OK:
        return None
    return f"{response.status}: {_reason(body)}"


def _reason(body: bytes) -> str:
    try:
        return json.dumps(json.loads(body))[:300]
    except ValueError:
        return body.decode(errors="replace")[:300]
