"""Whatever is sent to what the OpenAPI document describes is answered as described; never a server error."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentworld.platform.memory import InMemoryLog
from gateway.app import create_app
from gateway.directory import LocalDirectory
from gateway.settings import GatewaySettings
from gateway.upstream import Upstream
from tests.unit.gateway.harness import running_gateway
from tests.unit.gateway.streams.stand_in import standing_in

CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
NO_REWARD_FUNCTION = 501
"""The one server error that is meant: documented at `/compute_reward`."""


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """URL of a gateway on a socket of loopback, in a thread of its own, over an engine that answers."""
    started, urls = threading.Event(), list[str]()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with standing_in() as engine, running_gateway(engine) as gateway:
            urls.append(gateway.url)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    yield urls[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)
    loop.close()


async def document() -> dict[str, Any]:
    """What `/openapi.json` answers."""
    settings = GatewaySettings()
    upstream = Upstream(settings)
    app = create_app(
        settings, publisher=InMemoryLog().publisher(), directory=LocalDirectory(), upstream=upstream
    )
    await upstream.close()
    return app.control.openapi()


schema = schemathesis.openapi.from_dict(asyncio.run(document()))
numbers = itertools.count()


@schema.parametrize()
@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_anything_sent_is_answered_as_described(case: schemathesis.Case, served: str) -> None:
    number = next(numbers)
    if case.path_parameters and number % 3:
        # A trajectory that is open, so that more than its absence is told.
        case.path_parameters = {"trajectory_id": f"t{number}", "prompt_id": "p1"}
        registered = httpx.post(f"{served}/t{number}/p1/v1/register_trajectory", json={})
        assert registered.status_code == 200
    response = case.call(base_url=served)
    meant = case.operation.path == "/compute_reward" and response.status_code == NO_REWARD_FUNCTION
    case.validate_response(response, checks=CHECKS if meant else [not_a_server_error, *CHECKS])
