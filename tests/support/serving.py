"""A scripted engine's application on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(app: web.Application, *, handler_cancellation: bool = False) -> AsyncIterator[str]:
    """The base URL, with `/v1`, on a free port of loopback. `handler_cancellation`: a handler ends with its
    client."""
    runner = web.AppRunner(app, handler_cancellation=handler_cancellation, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
