"""An engine's reply on its way: bytes for the exchange, parts for the answer and the dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.engine import EngineObject
from gateway.engines import Reading
from gateway.upstreams.http import HttpReply


@dataclass(slots=True)
class UpstreamReply:
    """A reply with 200, its body not read yet."""

    http: HttpReply
    reading: Reading

    @property
    def is_stream(self) -> bool:
        """Whether it is an event stream."""
        return self.http.is_stream

    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamFailed`."""
        return await self.http.read()

    def parts(self) -> AsyncIterator[bytes]:
        """The body in parts, as they arrive. Raises `UpstreamFailed`."""
        return self.http.parts()

    def told_all(self) -> None:
        """The stream said that it is over: its connection may be kept."""
        self.http.told_all = True

    def whole(self, part: EngineObject) -> EngineObject:
        """Take in a reply that is not streamed; what the dialect sees. Raises `MalformedReply`."""
        return self.reading.whole(part)

    def chunk(self, part: EngineObject) -> EngineObject | None:
        """Take in a chunk; what the dialect sees, None where that is nothing. Raises `MalformedReply`."""
        return self.reading.chunk(part)
