"""`POST …/v1/messages/count_tokens`: how many tokens the prompt of a Messages request has."""

from __future__ import annotations

import logging

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.ids import check_name
from gateway.asgi import ClientGone, Receive, Scope, Send, read_body, send_failure, send_reply
from gateway.callers import authorization
from gateway.canonical import ChatCall
from gateway.dialects import Dialect, parsed
from gateway.dialects.messages import count_reply, counted, estimate, tokenize_body
from gateway.engine import MalformedReply
from gateway.failures import Failure
from gateway.restoring import Restoring
from gateway.upstream import Upstream, UpstreamFailed

logger = logging.getLogger(__name__)


class Counting:
    """Asks the engine to tokenize (vLLM's `/tokenize`, beside `/v1`); estimates where it cannot."""

    def __init__(
        self, messages: Dialect, *, upstream: Upstream, restoring: Restoring, max_body_bytes: int
    ) -> None:
        self._messages = messages
        self._upstream = upstream
        self._restoring = restoring
        self._max_body_bytes = max_body_bytes

    async def serve(self, ids: tuple[str, str] | None, scope: Scope, receive: Receive, send: Send) -> None:
        """One count; nothing is captured. `ids`: of trajectory and prompt, where the path has them."""
        try:
            if ids is not None:
                check_name(ids[0], "trajectory id")
                check_name(ids[1], "prompt id")
            body = await read_body(scope, receive, max_bytes=self._max_body_bytes)
            call = parsed(self._messages, body)
            if ids is not None:
                self._restoring.put_back(call, ids[0])
            await send_reply(send, 200, await self._count(call, authorization(scope)))
        except (InvalidInput, Unavailable) as exc:
            failure = Failure.of(exc)
            await send_failure(send, failure, self._messages.error(failure))
        except ClientGone:
            logger.debug("a client left before its request was whole")

    async def _count(self, call: ChatCall, key: str) -> bytes:
        try:
            model = await self._upstream.model_for(call.model, authorization=key)
            body = tokenize_body(call, model=model)
            tokenized = await self._upstream.post("/tokenize", body, model=call.model, authorization=key)
            return count_reply(counted(tokenized), estimated=False)
        except (UpstreamFailed, MalformedReply):
            return count_reply(estimate(call), estimated=True)
