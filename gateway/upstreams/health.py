"""Health checks of one engine, in the background."""

from __future__ import annotations

import asyncio
import logging

from gateway.upstream_settings import UpstreamSettings
from gateway.upstreams.member import Member

logger = logging.getLogger(__name__)

_FAILURES = 2
"""One missed check may be a pause of the engine; two in a row are not."""


async def watch(member: Member, settings: UpstreamSettings) -> None:
    """Keep `member.well` up to date until cancelled. An engine that loads weights is not asked."""
    failures = 0
    while True:
        if not member.held:
            well = await member.http.is_well(timeout_ms=settings.health_timeout_ms)
            failures = 0 if well else failures + 1
            now_well = failures < _FAILURES
            if now_well != member.well:
                logger.warning("engine %s is %s", member.name, "well again" if now_well else "not well")
                member.well = now_well
        await asyncio.sleep(settings.health_interval_ms / 1000)
