"""All engines behind the gateway: which pool takes a call, model lists, published weights."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from agentworld.contract.events import PolicyPublished
from gateway.canonical import ChatCall
from gateway.engine import Answer
from gateway.engines.weights import weights_of
from gateway.failures import Failure
from gateway.settings import GatewaySettings
from gateway.upstream_settings import UpstreamSettings
from gateway.upstreams import health
from gateway.upstreams.failed import UpstreamFailed
from gateway.upstreams.http import HttpReply
from gateway.upstreams.models import entries_of, listed_models, model_list
from gateway.upstreams.pool import Pool
from gateway.upstreams.reply import UpstreamReply
from gateway.upstreams.updates import Updates

__all__ = ["Upstream", "UpstreamFailed", "UpstreamReply"]

_DEFAULT = "default"


class Upstream:
    """The engines. Needs a running event loop when created; `close` ends its background work.

    Raises `ContractViolation` for settings that cannot be used.
    """

    def __init__(self, settings: GatewaySettings | UpstreamSettings) -> None:
        chosen = settings if isinstance(settings, UpstreamSettings) else UpstreamSettings.of(settings)
        self._settings = chosen
        self._pools = [Pool(pool, chosen) for pool in chosen.pools]
        self._by_name = {name: p for p in self._pools for name in (p.name, *p.settings.aliases)}
        self._passing = next((p for p in self._pools if p.settings.passes_names), None)
        self._default = self._default_pool(chosen)
        self._newest: dict[str, PolicyPublished] = {}
        self._updates: dict[str, Updates] = {}
        self._tasks: list[asyncio.Task[None]] = []
        for pool in self._pools:
            self._begin_background(pool)
        self.name = self._pools[0].members[0].name

    def _default_pool(self, settings: UpstreamSettings) -> Pool | None:
        if settings.default:
            return self._by_name[settings.default]
        trainable = [p for p in self._pools if p.settings.trainable]
        return trainable[0] if len(trainable) == 1 else None

    def _begin_background(self, pool: Pool) -> None:
        for member in pool.members:
            if self._settings.health_interval_ms:
                self._keep(health.watch(member, self._settings))
            weights = weights_of(member.settings.kind)
            if member.settings.update_weights and weights is not None:
                updates = Updates(member, weights, self._settings)
                self._updates[member.name] = updates
                self._keep(updates.run())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _find(self, model: str) -> tuple[Pool, str | None]:
        """The pool for a client's model name, and the engine's name for it where that is the client's."""
        if model == _DEFAULT and self._default is not None:
            return self._default, None
        if model in self._by_name:
            return self._by_name[model], None
        if self._passing is not None:
            return self._passing, model
        known = ", ".join(f"`{name}`" for name in self._by_name)
        message = f"there is no model `{model}` here: name one of {known}"
        failure = Failure(404, "model_not_found", message, param="model")
        raise UpstreamFailed("failed", failure, answered=404)

    @property
    def continues(self) -> bool:
        """Whether any engine is to be given prompts as ids."""
        return any(m.settings.continue_tokens for p in self._pools for m in p.members)

    @contextlib.asynccontextmanager
    async def ask(
        self, call: ChatCall, answer: Answer, *, authorization: str = "", affinity: str = ""
    ) -> AsyncIterator[UpstreamReply]:
        """Ask an engine of the call's model. Leaving the block early cancels the call there.

        `affinity` (the trajectory id) keeps calls that share a prefix at one engine. Raises
        `UpstreamFailed` for no such model, no connection, silence, or any status but 200.
        """
        pool, model = self._find(call.model)
        asked = pool.ask(call, answer, model=model, authorization=authorization, affinity=affinity)
        async with asked as reply:
            yield reply

    @contextlib.asynccontextmanager
    async def chat(self, body: bytes, *, authorization: str) -> AsyncIterator[HttpReply]:
        """Send a ready-made chat completion to the first engine. Raises `UpstreamFailed`."""
        http = self._pools[0].members[0].http
        reply = await http.begin("/chat/completions", body, authorization=authorization)
        try:
            yield reply
        finally:
            reply.end()

    async def post(self, path: str, body: bytes, *, model: str = _DEFAULT, authorization: str = "") -> bytes:
        """Ask an engine of that model beside `/v1` (`/tokenize`). Raises `UpstreamFailed`."""
        pool, _ = self._find(model)
        return await pool.members[0].http.post_beside(path, body, authorization=authorization)

    async def model_for(self, name: str, *, authorization: str) -> str:
        """The engine's name for the model a client asked for. Raises `UpstreamFailed`."""
        pool, asked = self._find(name)
        return await pool.members[0].model_name(asked, authorization=authorization)

    async def models(self, *, authorization: str) -> bytes:
        """The model list: names and aliases of all pools, with what their engines say of them.

        One pool that passes names on shows its engine's list. Raises `UpstreamFailed` for that alone.
        """
        if self._passing is not None and len(self._by_name) == 1:
            return await self._passing.members[0].http.models(authorization=authorization)
        lists = await asyncio.gather(*(self._entries(pool, authorization) for pool in self._pools))
        return model_list([entry for entries in lists for entry in entries])

    async def _entries(self, pool: Pool, authorization: str) -> list[dict[str, Any]]:
        member = next((m for m in pool.members if m.well and m.breaker.allows), pool.members[0])
        listed: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(UpstreamFailed, TimeoutError):
            async with asyncio.timeout(self._settings.health_timeout_ms / 1000):
                listed = listed_models(await member.http.models(authorization=authorization))
        model = member.settings.model
        entry = listed.get(model) if model else next(iter(listed.values()), None)
        if not pool.settings.passes_names:
            return entries_of([pool.name, *pool.settings.aliases], entry)
        return [*listed.values(), *entries_of(pool.settings.aliases, entry)]

    def published(self, event: PolicyPublished) -> None:
        """New weights of a policy: engines that are to load them do; of the others it is assumed.

        Events older than the newest one seen are ignored: the topic may be read again.
        """
        newest = self._newest.get(event.policy)
        if newest is not None and _order(event) <= _order(newest):
            return
        self._newest[event.policy] = event
        for member in (m for p in self._pools if p.policy == event.policy for m in p.members):
            if member.name in self._updates:
                self._updates[member.name].published(event)
            else:
                member.version = event.version

    def measure(self) -> None:
        """Set the engines' gauges to what is so now."""
        for pool in self._pools:
            for member in pool.members:
                member.measure()

    def state(self) -> dict[str, object]:
        """For `/health`: each engine by name."""
        state = {m.name: m.state() for p in self._pools for m in p.members}
        for name, updates in self._updates.items():
            if updates.failure is not None:
                state[name]["update"] = updates.failure
        return dict(state)

    async def close(self) -> None:
        """End background work and close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools:
            await pool.close()


def _order(event: PolicyPublished) -> tuple[int, str]:
    return event.event_time_ms, event.event_id
