"""Proxied calls: admit, run the exchange, capture, and only then end the reply."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Sequence

from agentworld.contract.delta import Leaf
from agentworld.contract.errors import AgentWorldError, InvalidInput, Unavailable
from agentworld.contract.events import StepCaptured, StepRequest
from agentworld.contract.ids import check_name, new_id
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Publisher
from agentworld.platform.metrics import counter, gauge, histogram
from gateway.asgi import ClientGone, Receive, Scope, Send, read_body, send_failure, text_header, until_gone
from gateway.canonical import ChatCall
from gateway.capture import Arrival, captured_steps
from gateway.dialects import Dialect
from gateway.directory import Directory, open_entry
from gateway.exchange import Exchange
from gateway.failures import Failure
from gateway.leaves import LeafCache
from gateway.policies import PolicyVersions
from gateway.upstream import Upstream

logger = logging.getLogger(__name__)

_CLIENT_ID_HEADERS = (
    b"thread-id",
    b"session-id",
    b"x-session-id",
    b"x-parent-session-id",
    b"x-claude-code-session-id",
    b"x-claude-code-agent-id",
)


class Proxy:
    """Serves `POST /{trajectory_id}/{prompt_id}/v1/…` for every dialect."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        directory: Directory,
        upstream: Upstream,
        policies: PolicyVersions,
        leaves: LeafCache,
        source: str,
        max_body_bytes: int,
    ) -> None:
        self._publisher = publisher
        self._directory = directory
        self._upstream = upstream
        self._policies = policies
        self._leaves = leaves
        self._source = source
        self._max_body_bytes = max_body_bytes

    async def serve(
        self, dialect: Dialect, trajectory_id: str, prompt_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """One call, from request to end of reply."""
        started, started_at_ms = time.perf_counter(), time.time_ns() // 1_000_000
        step_id = new_id()
        gauge("gateway_open_calls").inc()
        status = "refused"
        try:
            check_name(trajectory_id, "trajectory id")
            check_name(prompt_id, "prompt id")
            body = await read_body(scope, receive, max_bytes=self._max_body_bytes)
            call = dialect.parse(body)
            entry = await open_entry(self._directory, trajectory_id, prompt_id)
            arrival = Arrival(
                step_id=step_id,
                trajectory_id=trajectory_id,
                prompt_id=prompt_id,
                policy=entry.policy,
                policy_version=self._policies.current(entry.policy),
                started_at_ms=started_at_ms,
                started=started,
                request=_request(dialect, call, body, scope),
            )
            exchange = Exchange(dialect, call, self._upstream, send, step_id=step_id, started=started)
            status = await self._exchange(arrival, call, exchange, scope, receive)
        except (InvalidInput, Unavailable) as exc:
            failure = Failure.of(exc)
            await send_failure(send, failure, dialect.error(failure))
        except ClientGone:
            logger.debug("a client left before its request was whole")
        finally:
            gauge("gateway_open_calls").dec()
            counter("gateway_calls", "protocol", "status").labels(dialect.protocol, status).inc()
            histogram("gateway_call_seconds").observe(time.perf_counter() - started)

    async def _exchange(
        self, arrival: Arrival, call: ChatCall, exchange: Exchange, scope: Scope, receive: Receive
    ) -> str:
        authorization = text_header(scope, b"authorization")
        await run_unless_gone(exchange.run(authorization=authorization), receive)
        steps = captured_steps(
            arrival,
            call,
            exchange.answer,
            exchange.ending(self._policies.current(arrival.policy)),
            self._leaves.recent(arrival.trajectory_id),
            engine=self._upstream.name,
            source=self._source,
        )
        try:
            await self._publish(steps)
        except AgentWorldError as exc:
            logger.warning("a step of trajectory %s was not captured: %s", arrival.trajectory_id, exc)
            await exchange.fail(Failure.of(exc))
            return "not_captured"
        if exchange.failure is not None:
            await exchange.fail(exchange.failure)
        else:
            await exchange.finish()
        return exchange.status

    async def _publish(self, steps: Sequence[tuple[StepCaptured, Leaf | None]]) -> None:
        records = [OutRecord.of(TRAJECTORY_EVENTS, step) for step, _ in steps]
        if len(records) == 1:
            await self._publisher.publish(records[0])
        else:
            await asyncio.gather(*map(self._publisher.publish, records))
        for step, leaf in steps:
            if leaf is not None:
                self._leaves.add(step.trajectory_id, leaf)


async def run_unless_gone(work: Awaitable[None], receive: Receive) -> None:
    """Run `work`; cancel it, and wait for it to see that, when the client closes the connection."""
    running = asyncio.ensure_future(work)
    gone = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
        await running
    finally:
        running.cancel()
        gone.cancel()


def _request(dialect: Dialect, call: ChatCall, body: bytes, scope: Scope) -> StepRequest:
    ids = dict(call.client_ids)
    for name in _CLIENT_ID_HEADERS:
        if value := text_header(scope, name):
            ids[name.decode()] = value[:256]
    retries = text_header(scope, b"x-stainless-retry-count")
    return StepRequest(
        protocol=dialect.protocol,
        model=call.model,
        stream=call.stream,
        sampling=call.sampling,
        fingerprint=hashlib.sha256(body).hexdigest(),
        retry_count=int(retries) if retries.isdecimal() else None,
        client=text_header(scope, b"user-agent")[:256],
        client_ids=ids,
    )
