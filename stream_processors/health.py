"""`GET /health` and `GET /metrics` of the worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

logger = logging.getLogger(__name__)


async def serve_health(host: str, port: int, status: Callable[[], dict[str, Any]]) -> web.AppRunner:
    """Serve until the runner's `cleanup`. `status()` has `status`: 200 where it is `ok`, else 503."""

    async def health(_: web.Request) -> web.Response:
        body = status()
        return web.json_response(body, status=200 if body["status"] == "ok" else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    bound = runner.addresses[0]
    logger.info("health on http://%s:%d/health", bound[0], bound[1])
    return runner
