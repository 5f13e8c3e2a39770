"""What the engine samples is with the client before the engine samples on: no delta waits for a later one."""

from __future__ import annotations

import pytest

from gateway.engines import EngineKind
from tests.unit.gateway.harness import running_gateway
from tests.unit.gateway.streams.client_streams import STREAMED, Kind
from tests.unit.gateway.streams.engine_streams import KINDS
from tests.unit.gateway.streams.lockstep import PIECES, check_lockstep, in_lockstep

CASES = [(path, kind) for path in STREAMED for kind in PIECES if path != "completions" or kind == "text"]


@pytest.mark.parametrize("engine_kind", KINDS)
@pytest.mark.parametrize(("path", "kind"), CASES)
async def test_each_delta_is_with_the_client_before_the_engine_samples_the_next_token(
    path: str, kind: Kind, engine_kind: EngineKind
) -> None:
    async with (
        in_lockstep(engine_kind) as engine,
        running_gateway(engine.url, upstream_kind=engine_kind) as gateway,
    ):
        await gateway.register()
        await check_lockstep(gateway.http, f"{gateway.url}/t1/p1", path, engine, kind)
        (step,) = gateway.steps
        assert step.status == "ok"
        if engine_kind != "openai":
            assert (step.token_source, step.integrity) == ("engine", [])
