"""The relay keeps every byte, and tells which replies came to their end."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.agents.wire import STEP_ID, Wire

PATH = "/t1/p1/v1/messages"


async def _echo(request):
    reply = web.StreamResponse(headers={STEP_ID: request.headers["number"]})
    await reply.prepare(request)
    for part in (b"you said ", await request.read()):
        await reply.write(part)
    return reply


async def _cut(request):
    reply = web.StreamResponse()
    await reply.prepare(request)
    await reply.write(b"begun")
    request.transport.close()
    return reply


@pytest.fixture
async def relayed():
    app = web.Application()
    app.router.add_post(PATH, _echo)
    app.router.add_post("/t1/p1/cut", _cut)
    async with TestServer(app) as server:
        with Wire(server.port) as wire:
            yield wire, f"http://127.0.0.1:{wire.port}"


async def test_exchanges_on_one_connection_are_told_apart(relayed):
    wire, url = relayed
    async with aiohttp.ClientSession() as session:
        for number in range(3):
            body, headers = json.dumps({"number": number}), {"number": str(number)}
            async with session.post(f"{url}{PATH}?beta=true", data=body, headers=headers) as reply:
                assert await reply.text() == f"you said {body}"
        assert wire.is_open("/t1/")
        assert not wire.is_open("/t2/")
    found = wire.exchanges("/t1/")
    assert [(e.path, e.status, e.step_id) for e in found] == [
        (f"{PATH}?beta=true", 200, str(number)) for number in range(3)
    ]
    assert [e.reply for e in found] == [b"you said " + e.body for e in found]
    assert all(e.answered for e in found)
    assert wire.exchanges("/t2/") == []


async def test_a_reply_that_broke_off_is_not_whole(relayed):
    wire, url = relayed
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            async with session.post(f"{url}/t1/p1/cut") as reply:
                await reply.read()
    [exchange] = wire.exchanges("/t1/")
    assert (exchange.status, exchange.reply, exchange.whole) == (200, b"begun", False)
    assert not exchange.answered


async def test_a_client_that_leaves_is_gone_for_the_server_too(relayed):
    wire, _ = relayed
    _, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    writer.write(f"POST {PATH} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab".encode())
    await writer.drain()
    async with asyncio.timeout(20):
        while not wire.is_open("/t1/"):
            await asyncio.sleep(0.01)
        writer.close()
        while wire.is_open("/t1/"):
            await asyncio.sleep(0.01)
    assert wire.exchanges("/t1/") == []
