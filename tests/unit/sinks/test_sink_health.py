"""`/health` says whether the sink can work, and why not; `/metrics` is there."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from agentworld.contract.errors import Unavailable
from sinks.health import Health, HealthServer


def get(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_health_turns_503_with_the_reason_and_back() -> None:
    health = Health({})
    server = HealthServer(health, host="127.0.0.1", port=0)
    try:
        assert get(server.port, "/health")[0] == 200
        health.trouble("clickhouse", "it is away")
        status, body = get(server.port, "/health")
        assert status == 503
        assert json.loads(body)["reason"] == "it is away"
        health.well("clickhouse")
        assert get(server.port, "/health")[0] == 200
        assert get(server.port, "/metrics")[0] == 200
        assert get(server.port, "/else")[0] == 404
    finally:
        server.close()


def test_probe_is_asked_so_that_an_idle_sink_notices() -> None:
    def probe() -> None:
        raise Unavailable("no broker")

    assert Health({"broker": probe}).look() == {"broker": "no broker"}


def test_taken_port_is_an_os_error() -> None:
    first = HealthServer(Health({}), host="127.0.0.1", port=0)
    try:
        with pytest.raises(OSError, match="in use"):
            HealthServer(Health({}), host="127.0.0.1", port=first.port)
    finally:
        first.close()
