"""The client's side of a streamed reply: opened late, kept alive while nothing comes, given up when stuck."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from gateway.asgi import Headers, Send, start_reply

_STREAM_HEADERS: Headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the two sides of a stream may be silent, in seconds."""

    first_keepalive_s: float = 10.0
    """Until the first keep-alive; it opens the stream where the engine has not answered yet."""
    keepalive_s: float = 10.0
    """Between later ones, while nothing else is sent."""
    stall_s: float = 300.0
    """How long a client may read nothing; then its call is cancelled."""


class ClientReply:
    """Server-sent events to one client. One writer at a time; a slow client holds its writer up."""

    def __init__(self, send: Send, headers: Headers, pace: Pace) -> None:
        self._send = send
        self._headers = headers
        self._pace = pace
        self._turn = asyncio.Lock()
        self._moved = 0.0
        """When something last went out or began to, on the loop's clock."""
        self.opened = False
        """Whether status and headers have gone out."""
        self.stalled = False
        """Whether the client read nothing for so long that it was given up."""

    async def write(self, out: bytes) -> None:
        """Send events; returns once the connection takes more."""
        async with self._turn:
            await self._part(out, more=True)

    async def end(self, out: bytes) -> None:
        """Send the last events and end the reply. A client that does not read them is let go."""
        if not self.stalled:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace.stall_s), self._turn:
                    await self._part(out, more=False)

    async def _part(self, out: bytes, *, more: bool) -> None:
        self._moved = asyncio.get_running_loop().time()
        if not self.opened:
            self.opened = True
            await start_reply(self._send, 200, _STREAM_HEADERS + self._headers)
        await self._send({"type": "http.response.body", "body": out, "more_body": more})
        self._moved = asyncio.get_running_loop().time()

    async def keep_alive(self, keepalive: Callable[[], bytes], writer: asyncio.Task[object]) -> None:
        """Run beside `writer`: send keep-alives in its pauses, and cancel it when the client is stuck."""
        loop, pace = asyncio.get_running_loop(), self._pace
        self._moved = loop.time()
        pause_s = pace.first_keepalive_s
        while True:
            waiting = self._turn.locked()
            due = self._moved + (pace.stall_s if waiting else pause_s)
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(min(left, pace.stall_s, pause_s))
            elif waiting:
                self.stalled = True
                writer.cancel()
                return
            else:
                async with self._turn:
                    await self._part(keepalive(), more=True)
            if self.opened:
                pause_s = pace.keepalive_s
