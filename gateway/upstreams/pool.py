"""Engines that serve one model: chooses one for each call, and tries another where that gave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Collection

from agentworld.platform.metrics import counter
from gateway.canonical import ChatCall
from gateway.engine import Answer, MalformedReply
from gateway.failures import Failure
from gateway.upstream_settings import PoolSettings, UpstreamSettings
from gateway.upstreams.choice import choose
from gateway.upstreams.failed import UNREACHABLE, UpstreamFailed
from gateway.upstreams.http import HttpReply
from gateway.upstreams.member import Member
from gateway.upstreams.reply import UpstreamReply

logger = logging.getLogger(__name__)

_BACKOFF_S = 0.1


class Pool:
    """One pool. Needs a running event loop when created."""

    def __init__(self, settings: PoolSettings, upstreams: UpstreamSettings) -> None:
        self.settings = settings
        self.name = settings.name
        own = not upstreams.by_trajectory_policy
        self.policy = settings.policy_name if own else None
        """Whose published versions count here."""
        self._named_policy = settings.policy or settings.name if own else None
        self.members = [Member(engine, upstreams) for engine in settings.engines]
        self._retries = upstreams.retries
        self._retry_after_max_s = upstreams.retry_after_max_ms / 1000

    @contextlib.asynccontextmanager
    async def ask(
        self, call: ChatCall, answer: Answer, *, model: str | None, authorization: str, affinity: str
    ) -> AsyncIterator[UpstreamReply]:
        """Ask one engine; `answer` says which, and of which version. Leaving early cancels the call there.

        Raises `UpstreamFailed`; the last engine's word where several were tried.
        """
        answer.trainable = self.settings.trainable
        answer.policy = self._named_policy
        member, reply, version = await self._begin(
            call, answer, model=model, authorization=authorization, affinity=affinity
        )
        try:
            yield UpstreamReply(reply, member.adapter_for(call).reading(call, answer))
            member.answered()
            await member.complete(call, answer)
        except UpstreamFailed as exc:
            member.failed(blamed=exc.blames_engine)
            raise
        except MalformedReply:
            member.failed(blamed=True)
            raise
        finally:
            member.open_calls -= 1
            reply.end()
            if answer.version_start is None:
                answer.version_start = version
            if answer.version_end is None:
                answer.version_end = member.version

    async def _begin(
        self, call: ChatCall, answer: Answer, *, model: str | None, authorization: str, affinity: str
    ) -> tuple[Member, HttpReply, int | None]:
        tried: set[str] = set()
        for retry in range(self._retries + 1):
            member = await self._take(affinity, tried)
            answer.engine, answer.logprobs_mode = member.name, member.settings.logprobs_mode
            version = member.version
            try:
                return member, await self._send(member, call, model, authorization), version
            except UpstreamFailed as exc:
                wait_s = self._wait_s(exc)
                if retry == self._retries or wait_s is None:
                    raise
                tried.add(member.name)
                counter("gateway_engine_retries", "engine").labels(member.name).inc()
                logger.info("engine %s gave no answer (%s); trying again", member.name, exc.failure.code)
                if len(tried) >= len(self.members):
                    tried.clear()
                    await asyncio.sleep(wait_s or _BACKOFF_S * 2**retry)
        raise AssertionError("unreachable")

    async def _send(self, member: Member, call: ChatCall, model: str | None, authorization: str) -> HttpReply:
        """Begin at `member`, whose open calls were counted up; counted down again where that fails."""
        try:
            reply = await member.begin(call, model=model, authorization=authorization)
        except UpstreamFailed as exc:
            member.open_calls -= 1
            member.failed(blamed=exc.blames_engine)
            raise
        except BaseException:
            member.open_calls -= 1
            member.breaker.given_up()
            raise
        member.breaker.answered()
        return reply

    def _wait_s(self, exc: UpstreamFailed) -> float | None:
        """How long to wait before the same engine is asked again; None where nothing may be repeated."""
        asked = exc.failure.retry_after
        seconds = _seconds(asked)
        if exc.answered == 429:
            return seconds if seconds is not None and seconds <= self._retry_after_max_s else None
        if exc.failure.code == UNREACHABLE or exc.answered in {502, 503}:
            return min(seconds or 0.0, self._retry_after_max_s)
        return None

    async def _take(self, affinity: str, tried: Collection[str]) -> Member:
        while True:
            member = self._chosen(affinity, tried)
            if not member.held:
                member.open_calls += 1
                member.breaker.began()
                return member
            await member.until_let_go()

    def _chosen(self, affinity: str, tried: Collection[str]) -> Member:
        able = [m for m in self.members if m.breaker.allows]
        if not able:
            raise self._unavailable()
        fresh = [m for m in able if m.name not in tried] or able
        ready = [m for m in fresh if not m.held] or fresh
        # All sick by their health checks: the checks may be wrong, so a call is tried all the same.
        well = [m for m in ready if m.well] or ready
        return choose(well, affinity, spill_calls=self.settings.spill_calls)

    def _unavailable(self) -> UpstreamFailed:
        wait_s = min(m.breaker.opens_in_s for m in self.members)
        message = f"no engine of `{self.name}` answers at present: start one, or try again"
        failure = Failure(503, "upstream_unavailable", message, retry_after=str(max(1, math.ceil(wait_s))))
        return UpstreamFailed("failed", failure)

    async def close(self) -> None:
        """Close all connections."""
        for member in self.members:
            await member.http.close()


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
