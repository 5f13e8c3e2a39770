"""One call under way: asks the engine, passes its answer on, gathers what is to be captured."""

from __future__ import annotations

import asyncio
import logging
import time

from agentworld.contract.events import StepError
from agentworld.contract.events.trajectory_events import StepStatus
from gateway.asgi import Send, send_failure, send_reply, start_reply
from gateway.canonical import ChatCall
from gateway.capture import Ending
from gateway.dialects import ClientStream, Dialect
from gateway.engine import Answer, EngineObject, MalformedReply, engine_body
from gateway.failures import Failure
from gateway.sse import SseParser
from gateway.upstream import Upstream, UpstreamFailed, UpstreamReply

logger = logging.getLogger(__name__)

_CLIENT_CLOSED = 499
_DONE = b"[DONE]"


class Exchange:
    """Runs one call. After `run` the reply is complete but for what `finish` or `fail` sends."""

    def __init__(
        self,
        dialect: Dialect,
        call: ChatCall,
        upstream: Upstream,
        send: Send,
        *,
        step_id: str,
        started: float,
    ) -> None:
        self._dialect = dialect
        self._call = call
        self._upstream = upstream
        self._send = send
        self._started = started
        self._headers = [(b"x-agentworld-step-id", step_id.encode())]
        self.answer = Answer()
        self.status: StepStatus = "ok"
        self.failure: Failure | None = None
        self._streaming = False
        """Whether headers of a stream have gone to the client."""
        self._held = b""
        """The end of the reply: goes to the client only once the step is durable."""
        self._first_token_ms: float | None = None

    async def run(self, *, authorization: str) -> None:
        """Ask the engine; how it went is in `status` and `failure`. Cancel it when the client is gone."""
        try:
            model = await self._upstream.model_for(self._call.model, authorization=authorization)
            body = engine_body(self._call, model=model)
            async with self._upstream.chat(body, authorization=authorization) as reply:
                await (self._stream(reply) if self._call.stream else self._whole(reply))
        except UpstreamFailed as exc:
            self._failed(exc.status, exc.failure)
        except MalformedReply as exc:
            message = f"the engine's answer could not be read ({exc}): check AGENTWORLD_GATEWAY_UPSTREAM_URL"
            self._failed("malformed", Failure(502, "upstream_malformed", message))
        except asyncio.CancelledError:
            self._failed(
                "cancelled", Failure(_CLIENT_CLOSED, "client_gone", "the client closed the connection")
            )
        except Exception:
            logger.exception("a call failed within the gateway")
            self._failed("failed", Failure(500, "internal_error", "the gateway failed; its log says why"))

    def _failed(self, status: StepStatus, failure: Failure) -> None:
        self.status, self.failure = status, failure

    async def _whole(self, reply: UpstreamReply) -> None:
        parsed = EngineObject.parse(await reply.read())
        if (error := parsed.error) is not None:
            raise UpstreamFailed("failed", Failure(502, "upstream_error", error))
        if not parsed.choices:
            raise MalformedReply("it has no choices")
        self.answer.add(parsed, "message")
        self._held = self._dialect.reply(self._call, parsed)

    async def _stream(self, reply: UpstreamReply) -> None:
        if not reply.is_stream:
            raise MalformedReply("it is no event stream, and one was asked for")
        parser = SseParser()
        client = self._dialect.stream(self._call)
        async for part in reply.parts():
            out: list[bytes] = []
            done = False
            try:
                for data in parser.feed(part):
                    if done := data == _DONE:
                        break
                    out.append(self._take(client, data))
            finally:
                # Also where a chunk was bad: the client sees all before it, however the bytes were cut.
                if shown := b"".join(out):
                    await self._pass_on(shown)
            if done:
                break
        if not self.answer.finished(self._call.n):
            message = "the engine ended its stream before the answer was complete: try again"
            raise UpstreamFailed("failed", Failure(502, "upstream_broke_off", message))
        self._held += client.finish()

    def _take(self, client: ClientStream, data: bytes) -> bytes:
        """Gather a chunk; what of it goes to the client now. From the last finish reason on all is held."""
        chunk = EngineObject.parse(data)
        if (error := chunk.error) is not None:
            raise UpstreamFailed("failed", Failure(502, "upstream_error", error))
        self.answer.add(chunk, "delta")
        out = client.feed(chunk)
        if self._first_token_ms is None and any(c.sampled for c in self.answer.choices.values()):
            self._first_token_ms = self._elapsed_ms()
        if self.answer.finished(self._call.n):
            self._held += out
            return b""
        return out

    async def _pass_on(self, out: bytes) -> None:
        if not self._streaming:
            self._streaming = True
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
            await start_reply(self._send, 200, headers + self._headers)
        await self._send({"type": "http.response.body", "body": out, "more_body": True})

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
        if self._call.stream:
            await self._pass_on(self._held)
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await send_reply(self._send, 200, self._held, self._headers)

    async def fail(self, failure: Failure) -> None:
        """Tell the client what went wrong: as an error reply, or within a stream that has begun."""
        if self._streaming:
            body = self._dialect.error_event(failure)
            await self._send({"type": "http.response.body", "body": body})
        else:
            body = self._dialect.error(failure)
            await send_failure(self._send, failure, body, headers=self._headers)
