"""One call as its client sees it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, replace
from typing import Literal

import aiohttp
import msgspec

from tests.faults.plays import Play
from tests.faults.wire import Kind

Outcome = Literal["answered", "failed", "refused", "broken", "left"]
"""`answered`: the client has the complete reply; of a stream, its end event. `failed`: it was told of an
error, by status or within the stream. `refused`: it was told that nothing was recorded. `broken`: the
connection ended before any of these. `left`: the client closed it.
"""
_NOTHING_RECORDED = "nothing was recorded"
_ENGINE_S = 60.0
STEP_ID = "x-agentworld-step-id"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has ended."""

    mark: str
    trajectory_id: str
    kind: Kind
    play: Play
    fingerprint: str
    """SHA-256 of the request's body, which is like no other: steps carry it too."""
    outcome: Outcome = "broken"
    step_id: str = ""
    """As the reply's header names it."""
    text: str = ""
    http_status: int = 0
    """0 where the reply did not begin."""
    retry_after: str = ""
    detail: str = ""
    began_s: float = 0.0
    """Seconds on the monotonic clock."""
    ended_s: float = 0.0


async def ask(
    http: aiohttp.ClientSession, base_url: str, call: Call, body: bytes, *, leave_after: int | None = None
) -> Call | None:
    """Make the call and say how it ended; None where nobody listens, so that it never began.

    `leave_after`: close the connection after so many pieces of text.
    """
    began_s = time.monotonic()
    url = f"{base_url}/v1/{call.kind.wire.path}"
    try:
        async with http.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
            call = replace(
                call,
                http_status=response.status,
                step_id=response.headers.get(STEP_ID, ""),
                retry_after=response.headers.get("Retry-After", ""),
            )
            ended = await _read(response, call, leave_after)
    except aiohttp.ClientConnectorError:
        return None
    except (aiohttp.ClientError, OSError, TimeoutError) as exc:
        ended = replace(call, outcome="broken", detail=f"{type(exc).__name__}: {exc}")
    return replace(ended, began_s=began_s, ended_s=time.monotonic())


async def ask_and_leave(
    http: aiohttp.ClientSession, base_url: str, call: Call, body: bytes, engine_began: Awaitable[None]
) -> Call | None:
    """As `ask`, but gone once the engine is at it, although nothing has been answered."""
    asking = asyncio.create_task(ask(http, base_url, call, body))
    seen = asyncio.ensure_future(asyncio.wait_for(engine_began, _ENGINE_S))
    began_s = time.monotonic()
    try:
        await asyncio.wait({asking, seen}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        seen.result()
    finally:
        seen.cancel()
        asking.cancel()
        await asyncio.wait({asking})
    return replace(call, outcome="left", began_s=began_s, ended_s=time.monotonic())


async def _read(response: aiohttp.ClientResponse, call: Call, leave_after: int | None) -> Call:
    if response.status != 200:
        said = await response.text()
        refused = response.status == 503 and "Retry-After" in response.headers
        return replace(call, outcome="refused" if refused else "failed", detail=said[:300])
    if not call.kind.stream:
        reply = msgspec.json.decode(await response.read())
        return replace(call, outcome="answered", text=call.kind.wire.text(reply))
    return await _read_stream(response, call, leave_after)


async def _read_stream(response: aiohttp.ClientResponse, call: Call, leave_after: int | None) -> Call:
    texts: list[str] = []
    async for data in _data(response):
        piece = call.kind.wire.piece(data)
        if piece.failure:
            refused = _NOTHING_RECORDED in piece.failure
            return replace(call, outcome="refused" if refused else "failed", detail=piece.failure)
        if piece.end:
            return replace(call, outcome="answered", text="".join(texts))
        texts += [piece.text] if piece.text else []
        if leave_after is not None and len(texts) >= leave_after:
            response.close()
            return replace(call, outcome="left", text="".join(texts))
    return replace(call, outcome="broken", detail="the stream ended without its end event")


async def _data(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for line in response.content:
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ").strip()


def fingerprint_of(body: bytes) -> str:
    """The digest that a step carries of its request."""
    return hashlib.sha256(body).hexdigest()
