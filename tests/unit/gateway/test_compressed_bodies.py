"""Request bodies under gzip and zstd."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from agentworld.contract.errors import InvalidInput
from gateway.decompression import decompressed
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine

PACK = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": zstd.compress}
BODY = json.dumps({**HI, "note": "é" * 50}).encode()


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, max_body_bytes=10_000) as gateway:
        await gateway.register()
        yield gateway


@pytest.mark.parametrize("encoding", PACK)
async def test_a_compressed_call_is_a_call(
    gateway: RunningGateway, engine: ScriptedEngine, encoding: str
) -> None:
    headers = {"Content-Encoding": encoding.upper()}
    status, _ = await gateway.post("/t1/p1/v1/chat/completions", data=PACK[encoding](BODY), headers=headers)
    assert status == 200
    assert engine.requests[0]["note"] == "é" * 50
    status, _ = await gateway.post(
        "/t1/p1/v1/reward", data=PACK[encoding](b'{"value": 1}'), headers={"Content-Encoding": encoding}
    )
    assert status == 200


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("path", ["/t1/p1/v1/chat/completions", "/t1/p1/v1/reward"])
async def test_the_limit_holds_for_the_unpacked_body(
    gateway: RunningGateway, encoding: str, path: str
) -> None:
    bomb = PACK[encoding](b" " * 50_000_000)
    if len(bomb) > 10_000:
        bomb = PACK[encoding](b" " * 1_000_000)
    status, reply = await gateway.post(path, data=bomb, headers={"Content-Encoding": encoding})
    assert status == 413
    assert reply["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("how", ["garbage", "cut", "damaged"])
async def test_bad_data_is_400(gateway: RunningGateway, encoding: str, how: str) -> None:
    packed = PACK[encoding](BODY)
    data = {"garbage": b"nonsense", "cut": packed[:-5], "damaged": packed[:10] + b"\xff\xff" + packed[12:]}[
        how
    ]
    status, reply = await gateway.post(
        "/t1/p1/v1/chat/completions", data=data, headers={"Content-Encoding": encoding}
    )
    assert status == 400
    assert reply["error"]["code"] in {"invalid_encoding", "invalid_json"}
    assert not gateway.steps


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.sampled_from(["gzip", "zstd"]))
def test_members_and_frames_are_joined_and_bounded(parts: list[bytes], encoding: str) -> None:
    packed = b"".join(map(PACK[encoding], parts))
    whole = b"".join(parts)
    assert decompressed(packed, encoding, max_bytes=len(whole)) == whole
    if whole:
        with pytest.raises(InvalidInput) as found:
            decompressed(packed, encoding, max_bytes=len(whole) - 1)
        assert found.value.status == 413


@given(st.binary(max_size=100), st.sampled_from(["gzip", "zstd"]))
def test_any_bytes_are_a_body_or_a_clear_error(data: bytes, encoding: str) -> None:
    with contextlib.suppress(InvalidInput):
        decompressed(data, encoding, max_bytes=1000)
