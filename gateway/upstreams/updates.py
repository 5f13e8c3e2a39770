"""Brings an engine to the newest published weights, its calls held meanwhile."""

from __future__ import annotations

import asyncio
import logging

from agentworld.contract.events import PolicyPublished
from gateway.engines.weights import UpdateFailed, Weights
from gateway.upstream_settings import UpstreamSettings
from gateway.upstreams.member import Member

logger = logging.getLogger(__name__)


class Updates:
    """One engine's weights. An engine that cannot load a version keeps its old one, and so do its steps."""

    def __init__(self, member: Member, weights: Weights, settings: UpstreamSettings) -> None:
        self._member = member
        self._weights = weights
        self._tries = settings.update_tries
        self._retry_s = settings.update_retry_ms / 1000
        self._wanted: PolicyPublished | None = None
        self._news = asyncio.Event()
        self.failure: str | None = None
        """Why the newest version was not loaded; None where it was."""

    def published(self, event: PolicyPublished) -> None:
        """A newer version than all before; one that is not loaded yet is skipped for it."""
        self._wanted = event
        self._news.set()

    async def run(self) -> None:
        """Load what is published until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._wanted is not None:
                await self._bring_to(self._wanted)

    async def _bring_to(self, event: PolicyPublished) -> None:
        name = self._member.name
        for attempt in range(1, self._tries + 1):
            if self._wanted is not event:
                return
            try:
                await self._load(event)
            except UpdateFailed as exc:
                self.failure = f"version {event.version} was not loaded: {exc}"
                logger.warning("engine %s, try %d of %d: %s", name, attempt, self._tries, self.failure)
                if attempt < self._tries:
                    await self._pause()
            else:
                self.failure = None
                self._member.version = event.version
                logger.info("engine %s serves version %d of %s", name, event.version, event.policy)
                return
        logger.error("engine %s keeps version %s", name, self._member.version)

    async def _load(self, event: PolicyPublished) -> None:
        if await self._serving() == event.version:
            return
        self._member.hold()
        try:
            await self._weights.load(self._member.http, event)
        finally:
            self._member.let_go()

    async def _serving(self) -> int | None:
        """The engine's word; it may have loaded the version before this gateway began."""
        try:
            serving = await self._weights.serving(self._member.http)
        except UpdateFailed:
            return None
        if serving is not None:
            self._member.version = serving
        return serving

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._retry_s):
                await self._news.wait()
        except TimeoutError:
            pass
