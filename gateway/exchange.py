"""One call under way: asks the engine, passes its answer on, gathers what is to be captured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from agentworld.contract.events import StepError
from agentworld.contract.events.trajectory_events import StepStatus
from gateway.asgi import Send, send_failure, send_reply
from gateway.callers import without_secret
from gateway.canonical import ChatCall
from gateway.capture import Ending
from gateway.client_reply import ClientReply, Pace
from gateway.dialects import ClientStream, Dialect
from gateway.engine import Answer, EngineObject, MalformedReply
from gateway.failures import Failure, internal_failure
from gateway.sse import SseParser
from gateway.upstream import Upstream, UpstreamFailed, UpstreamReply

_CLIENT_CLOSED = 499
_DONE = b"[DONE]"
_STOPPING = Failure(
    503, "gateway_stopping", "the gateway stops and the call took too long: try again", retry_after="1"
)
MiB = 1024 * 1024


class Exchange:
    """Runs one call. After `run` the reply is complete but for what `finish` or `fail` sends.

    `step_id` is empty for a call that is not captured; `affinity` is the trajectory's id.
    """

    def __init__(
        self,
        dialect: Dialect,
        call: ChatCall,
        upstream: Upstream,
        send: Send,
        *,
        step_id: str,
        started: float,
        affinity: str = "",
        pace: Pace | None = None,
        max_answer_bytes: int = 64 * MiB,
    ) -> None:
        self._dialect = dialect
        self._call = call
        self._upstream = upstream
        self._send = send
        self._started = started
        self._affinity = affinity
        self._max_answer_bytes = max_answer_bytes
        self._headers = [(b"x-agentworld-step-id", step_id.encode())] if step_id else []
        self._reply = ClientReply(send, self._headers, pace or Pace())
        self._client: ClientStream | None = dialect.stream(call) if call.stream else None
        self.answer = Answer()
        self.status: StepStatus = "ok"
        self.failure: Failure | None = None
        self._held = b""
        """The end of the reply: goes to the client only once the step is durable."""
        self._first_token_ms: float | None = None
        self._stopping = False

    async def run(self, *, authorization: str) -> None:
        """Ask the engine; how it went is in `status` and `failure`. Cancel it when the client is gone,
        or after `stop`."""
        try:
            async with self._kept_alive():
                await self._ask(authorization)
        except UpstreamFailed as exc:
            told = without_secret(exc.failure.message, authorization)
            self._failed(exc.status, replace(exc.failure, message=told))
        except MalformedReply as exc:
            message = f"the engine's answer could not be read ({exc}): check AGENTWORLD_GATEWAY_UPSTREAM_URL"
            self._failed("malformed", Failure(502, "upstream_malformed", message))
        except asyncio.CancelledError:
            self._failed("cancelled", self._why_cancelled())
        except Exception as exc:
            self._failed("failed", internal_failure(exc))

    def _why_cancelled(self) -> Failure:
        if self._stopping:
            return _STOPPING
        stuck, left = "the client read nothing of its stream for too long", "the client closed the connection"
        return Failure(_CLIENT_CLOSED, "client_gone", stuck if self._reply.stalled else left)

    def stop(self) -> None:
        """The gateway cannot wait any longer: what cancels `run` next is its doing, not the client's."""
        self._stopping = True

    def _failed(self, status: StepStatus, failure: Failure) -> None:
        self.status, self.failure = status, failure

    @asynccontextmanager
    async def _kept_alive(self) -> AsyncIterator[None]:
        writer = asyncio.current_task()
        if self._client is None or writer is None:
            yield
            return
        beside = asyncio.create_task(self._reply.keep_alive(self._client.keepalive, writer))
        try:
            yield
        finally:
            beside.cancel()

    async def _ask(self, authorization: str) -> None:
        asked = self._upstream.ask(
            self._call, self.answer, authorization=authorization, affinity=self._affinity
        )
        async with asked as reply:
            if self._client is not None:
                await self._stream(reply, self._client)
            else:
                await self._whole(reply)

    async def _whole(self, reply: UpstreamReply) -> None:
        body = await reply.read()
        self._check_size(len(body))
        parsed = EngineObject.parse(body)
        if (error := parsed.error) is not None:
            raise UpstreamFailed("failed", Failure(502, "upstream_error", error))
        if not parsed.choices:
            raise MalformedReply("it has no choices")
        shown = reply.whole(parsed)
        self._check_raw()
        self._held = self._dialect.reply(self._call, shown)

    async def _stream(self, reply: UpstreamReply, client: ClientStream) -> None:
        if not reply.is_stream:
            raise MalformedReply("it is no event stream, and one was asked for")
        parser = SseParser()
        size = 0
        async for part in reply.parts():
            size += len(part)
            self._check_size(size)
            out: list[bytes] = []
            done = False
            try:
                for data in parser.feed(part):
                    if done := data == _DONE:
                        break
                    out.append(self._take(reply, client, data))
            finally:
                # Also where a chunk was bad: the client sees all before it, however the bytes were cut.
                if shown := b"".join(out):
                    await self._reply.write(shown)
            if done:
                reply.told_all()
                break
        if not self.answer.finished(self._call.n):
            message = "the engine ended its stream before the answer was complete: try again"
            raise UpstreamFailed("failed", Failure(502, "upstream_broke_off", message))
        self._held += client.finish()

    def _check_size(self, size: int) -> None:
        if size > self._max_answer_bytes:
            message = (
                f"the engine's answer has more than {self._max_answer_bytes} bytes: ask for fewer tokens, or "
                "raise AGENTWORLD_GATEWAY_MAX_ANSWER_BYTES"
            )
            raise UpstreamFailed("failed", Failure(502, "answer_too_large", message), answered=200)

    def _check_raw(self) -> None:
        if self._call.raw and any(choice.tool_calls for choice in self.answer.choices.values()):
            message = (
                f"the engine `{self.answer.engine}` parses tool calls, but this trajectory asks for the raw "
                "text: start the engine without a tool call parser, or register without `raw_content`"
            )
            raise UpstreamFailed("failed", Failure(502, "raw_content_unavailable", message), answered=200)

    def _take(self, reply: UpstreamReply, client: ClientStream, data: bytes) -> bytes:
        """Gather a chunk; what of it goes to the client now. From the last finish reason on all is held."""
        chunk = EngineObject.parse(data)
        if (error := chunk.error) is not None:
            raise UpstreamFailed("failed", Failure(502, "upstream_error", error))
        shown = reply.chunk(chunk)
        self._check_raw()
        out = client.feed(shown) if shown is not None else b""
        if self._first_token_ms is None and any(c.sampled for c in self.answer.choices.values()):
            self._first_token_ms = self._elapsed_ms()
        if self.answer.finished(self._call.n):
            self._held += out
            return b""
        return out

    def _elapsed_ms(self) -> float:
        return round((time.perf_counter() - self._started) * 1000, 3)

    def ending(self, policy_version: int | None) -> Ending:
        """How the call ended, for its step. Call right after `run`."""
        error = None
        if self.failure is not None:
            error = StepError(
                code=self.failure.code, message=self.failure.message, http_status=self.failure.status
            )
        return Ending(
            status=self.status,
            latency_ms=self._elapsed_ms(),
            first_token_ms=self._first_token_ms,
            policy_version=policy_version,
            error=error,
        )

    async def finish(self) -> None:
        """The step is durable: send what ends the reply."""
        if self._client is not None:
            await self._reply.end(self._held)
        else:
            await send_reply(self._send, 200, self._held, self._headers)

    async def fail(self, failure: Failure) -> None:
        """Tell the client what went wrong: as an error reply, or within a stream that has begun."""
        if self._client is not None and self._reply.opened:
            await self._reply.end(self._client.fail(failure))
        else:
            body = self._dialect.error(failure)
            await send_failure(self._send, failure, body, headers=self._headers)
