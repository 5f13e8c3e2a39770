"""Proxied calls: admit, place, run the exchange, capture, and only then end the reply."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentworld.contract.delta import Leaf
from agentworld.contract.errors import AgentWorldError, InvalidInput, Unavailable
from agentworld.contract.events import StepCaptured, StepRequest, raw_json
from agentworld.contract.ids import check_name, new_id
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Publisher
from agentworld.platform.metrics import counter, gauge, histogram
from gateway.access import Access
from gateway.admission import Admission, TooManyCalls
from gateway.asgi import ClientGone, Receive, Scope, Send, read_body, send_failure, text_header, until_gone
from gateway.callers import TRUSTED, authorization, caller_key, header_ids, without_secrets
from gateway.canonical import ChatCall
from gateway.capture import Arrival, captured_steps
from gateway.client_reply import Pace
from gateway.continuing import Continuing
from gateway.dialects import Dialect, parsed
from gateway.directory import Directory, Entry, open_entry
from gateway.exchange import Exchange
from gateway.failures import Failure
from gateway.leaves import LeafCache
from gateway.online import Online, Placed
from gateway.policies import PolicyVersions
from gateway.restore import Replaced
from gateway.restoring import Restoring
from gateway.upstream import Upstream

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one call."""

    max_body_bytes: int
    max_answer_bytes: int
    pace: Pace


@dataclass(frozen=True, slots=True)
class _Captured:
    """A call whose steps are captured."""

    arrival: Arrival
    placed: Placed | None
    replaced: list[Replaced] = field(default_factory=list)


class Proxy:
    """Serves `POST /{trajectory_id}/{prompt_id}/v1/…` and `POST /v1/…` for every dialect."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        directory: Directory,
        upstream: Upstream,
        policies: PolicyVersions,
        leaves: LeafCache,
        restoring: Restoring,
        online: Online | None,
        admission: Admission,
        check_room: Callable[[], None],
        bounds: Bounds,
        source: str,
        access: Access,
        raw_content: bool = False,
    ) -> None:
        self._publisher = publisher
        self._directory = directory
        self._upstream = upstream
        self._policies = policies
        self._leaves = leaves
        self._continuing = Continuing(leaves, on=upstream.continues)
        self._restoring = restoring
        self._online = online
        self._admission = admission
        self._check_room = check_room
        self._bounds = bounds
        self._source = source
        self._stopped = False
        self._under_way: dict[asyncio.Task[None], Exchange] = {}
        self._access = access
        self._raw_content = raw_content
        """Of trajectories that cannot be looked up while the broker is away."""

    async def serve(
        self, dialect: Dialect, ids: tuple[str, str] | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """One call, from request to end of reply. `ids`: trajectory and prompt, where the path has them."""
        started = time.perf_counter()
        gauge("gateway_open_calls").inc()
        status = "refused"
        try:
            with self._admission.admitted(lambda: caller_key(scope)):
                status = await self._serve(dialect, ids, scope, receive, send, started)
        except (InvalidInput, Unavailable) as exc:
            failure = Failure.of(exc)
            await send_failure(send, failure, dialect.error(failure))
        except TooManyCalls as exc:
            await send_failure(send, exc.failure, dialect.error(exc.failure))
        except ClientGone:
            logger.debug("a client left before its request was whole")
        finally:
            gauge("gateway_open_calls").dec()
            counter("gateway_calls", "protocol", "status").labels(dialect.protocol, status).inc()
            histogram("gateway_call_seconds").observe(time.perf_counter() - started)

    def stop_calls(self) -> None:
        """End the calls under way: each is told, and captured as cancelled with what it had."""
        self._stopped = True
        for running, exchange in self._under_way.items():
            exchange.stop()
            running.cancel()

    async def _serve(
        self,
        dialect: Dialect,
        ids: tuple[str, str] | None,
        scope: Scope,
        receive: Receive,
        send: Send,
        started: float,
    ) -> str:
        step_id, started_at_ms = new_id(), time.time_ns() // 1_000_000
        if ids is not None:
            check_name(ids[0], "trajectory id")
            check_name(ids[1], "prompt id")
        body = await read_body(scope, receive, max_bytes=self._bounds.max_body_bytes)
        call = parsed(dialect, body)
        client_ids = call.client_ids | header_ids(scope)
        if ids is None and dialect.protocol == "generate":
            ids = self._place_in_body(call, scope)
        entry, placed = await self._place(dialect, ids, call, client_ids)
        captured = None
        if entry is not None:
            arrival = Arrival(
                step_id=step_id,
                trajectory_id=entry.trajectory_id,
                prompt_id=entry.prompt_id,
                policy=entry.policy,
                policy_version=self._policies.current(entry.policy),
                started_at_ms=started_at_ms,
                started=started,
                request=_request(dialect, call, body, scope, client_ids),
            )
            if dialect.protocol == "chat_completions":
                call.raw = entry.raw_content if entry.run_id else self._raw_content
            replaced = self._restoring.put_back(call, entry.trajectory_id)
            self._continuing.offer(call, entry.trajectory_id)
            captured = _Captured(arrival, placed, replaced)
        if self._stopped:
            raise Unavailable("the gateway stops: try again")
        exchange = Exchange(
            dialect,
            call,
            self._upstream,
            send,
            step_id=step_id if captured is not None else "",
            started=started,
            affinity=entry.trajectory_id if entry is not None else "",
            pace=self._bounds.pace,
            max_answer_bytes=self._bounds.max_answer_bytes,
        )
        running = asyncio.create_task(exchange.run(authorization=authorization(scope)))
        self._under_way[running] = exchange
        try:
            await finished_or_gone(running, receive)
        finally:
            del self._under_way[running]
        if captured is not None:
            try:
                await self._capture(captured, call, exchange)
            except AgentWorldError as exc:
                logger.warning(
                    "a step of trajectory %s was not captured: %s", captured.arrival.trajectory_id, exc
                )
                await exchange.fail(Failure.of(exc))
                return "not_captured"
        if exchange.failure is not None:
            await exchange.fail(exchange.failure)
        else:
            await exchange.finish()
        return exchange.status

    def _place_in_body(self, call: ChatCall, scope: Scope) -> tuple[str, str] | None:
        """Trajectory and prompt that a body names. Raises `InvalidInput` 401 where auth is on and neither
        the name nor the request has what it takes."""
        trusted = bool(scope.get(TRUSTED))
        if call.place is None:
            if not trusted:
                self._access.opened("")
            return None
        return self._access.opened(call.place[0], trusted=trusted), call.place[1]

    async def _place(
        self, dialect: Dialect, ids: tuple[str, str] | None, call: ChatCall, client_ids: dict[str, str]
    ) -> tuple[Entry | None, Placed | None]:
        """The trajectory that the call belongs to; none where it is answered without being captured."""
        if ids is None and dialect.protocol == "generate":
            return None, None
        # Now: a stream that has begun cannot be refused with a status when its step finds no room.
        self._check_room()
        if ids is not None:
            return await open_entry(self._directory, *ids), None
        if self._online is None:
            raise InvalidInput(
                "online mode is off: send calls to /{trajectory_id}/{prompt_id}/v1/…, or set "
                "AGENTWORLD_GATEWAY_ONLINE=true",
                code="online_mode_off",
                status=404,
            )
        placed = await self._online.place(call, client_ids)
        return placed.entry, placed

    async def _capture(self, captured: _Captured, call: ChatCall, exchange: Exchange) -> None:
        """Make the call's steps durable, then let later calls build on them."""
        arrival, placed = captured.arrival, captured.placed
        rewritten = self._restoring.news(arrival.trajectory_id, captured.replaced)
        steps = captured_steps(
            arrival,
            call,
            exchange.answer,
            exchange.ending(self._policies.current(arrival.policy)),
            self._leaves.recent(arrival.trajectory_id),
            engine=self._upstream.name,
            source=self._source,
            metadata=rewritten.metadata(),
        )
        try:
            await self._publish(steps)
        except BaseException:
            self._restoring.not_told(arrival.trajectory_id, rewritten)
            if placed is not None and self._online is not None:
                self._online.failed(placed)
            raise
        self._continuing.remember(steps, call, exchange.answer)
        self._restoring.remember([step for step, _ in steps], call)
        if placed is not None and self._online is not None:
            for step, _ in steps:
                message = raw_json(step.message)
                if step.status == "ok" and message is not None:
                    self._online.sampled(placed, message)
                else:
                    self._online.failed(placed)

    async def _publish(self, steps: Sequence[tuple[StepCaptured, Leaf | None]]) -> None:
        records = [OutRecord.of(TRAJECTORY_EVENTS, step) for step, _ in steps]
        if len(records) == 1:
            await self._publisher.publish(records[0])
        else:
            await asyncio.gather(*map(self._publisher.publish, records))
        for step, leaf in steps:
            if leaf is not None:
                self._leaves.add(step.trajectory_id, leaf)


async def finished_or_gone(running: asyncio.Task[None], receive: Receive) -> None:
    """Wait for `running`; cancel it, and wait for it to see that, when the client closes the connection."""
    gone = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
        await running
    finally:
        running.cancel()
        gone.cancel()


def _request(
    dialect: Dialect, call: ChatCall, body: bytes, scope: Scope, client_ids: dict[str, str]
) -> StepRequest:
    retries = text_header(scope, b"x-stainless-retry-count")
    return StepRequest(
        protocol=dialect.protocol,
        model=call.model,
        stream=call.stream,
        sampling=without_secrets(call.sampling),
        fingerprint=hashlib.sha256(body).hexdigest(),
        retry_count=int(retries) if retries.isdecimal() and len(retries) < 6 else None,
        client=text_header(scope, b"user-agent")[:256],
        client_ids=client_ids,
    )
