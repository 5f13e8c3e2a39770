"""`GET /health` and `GET /metrics` over the standard library, in a thread of its own."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agentworld.contract.errors import AgentWorldError

Probe = Callable[[], None]
"""Raises an `AgentWorldError` that says why its subject cannot be used now."""


class Health:
    """What keeps the sink from working, by component. Safe to use from any thread.

    `probes` are asked at each look, so that an idle sink notices too that a server is away.
    """

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._probes = dict(probes)
        self._lock = threading.Lock()
        self._troubles: dict[str, str] = {}

    def trouble(self, component: str, reason: str) -> None:
        """The component keeps the sink from working."""
        with self._lock:
            self._troubles[component] = reason

    def well(self, component: str) -> None:
        """The component works."""
        with self._lock:
            self._troubles.pop(component, None)

    def look(self) -> dict[str, str]:
        """Reasons by component; empty is healthy."""
        found = {}
        for component, probe in self._probes.items():
            try:
                probe()
            except AgentWorldError as exc:
                found[component] = str(exc)
        with self._lock:
            return found | self._troubles


class HealthServer:
    """Serves `health` until closed. `port` 0 takes a free one; `.port` is the one taken."""

    def __init__(self, health: Health, *, host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                match self.path.partition("?")[0]:
                    case "/health":
                        status, body = _report(health)
                        self._answer(status, "application/json", body)
                    case "/metrics":
                        self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
                    case _:
                        self._answer(404, "application/json", b'{"error":"use /health or /metrics"}\n')

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # a probe that gave up waiting
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every second: not worth a line."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _report(health: Health) -> tuple[int, bytes]:
    troubles = health.look()
    body = {
        "status": "unavailable" if troubles else "ok",
        "service": "sink",
        "reason": "; ".join(troubles.values()) or None,
        "components": troubles,
    }
    return (503 if troubles else 200), json.dumps(body).encode() + b"\n"
