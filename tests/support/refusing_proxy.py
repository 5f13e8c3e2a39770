"""Between a producer and its broker: the first batch finds a broker that does not lead its partition yet."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

_PRODUCE = 0
_NOT_LEADER = 6
_HEAD = struct.Struct(">hhi")


class RefusingProxy:
    """Keeps the first produce request from the broker, and answers it just before the second is answered.

    That is how a broker behaves that becomes the partition's leader between the two: the first batch is
    refused, the second is taken. The answer to the first is that to the second, with another error code.
    """

    def __init__(self, broker: str, topic: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._topic = topic.encode()
        self._port = 0
        self._connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        self._refused: int | None = None
        """Correlation id of the request that was kept."""
        self.refusals = 0
        self.requests = 0
        """Produce requests, with the one that was kept."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """`host:port` for the producer."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield f"127.0.0.1:{self._port}"
        finally:
            server.close()
            for writer in self._connections.values():
                writer.close()
            await asyncio.gather(*filter(None, self._connections))

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._connections[asyncio.current_task()] = to_client
        broker, to_broker = await asyncio.open_connection(*self._broker)
        produced: set[int] = set()
        answers = asyncio.create_task(self._pass_answers(broker, to_client, produced))
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                request = await _message(client)
                api, _, correlation = _HEAD.unpack_from(request)
                if api == _PRODUCE:
                    self.requests += 1
                    if self.requests == 1:
                        self._refused = correlation
                        continue
                    produced.add(correlation)
                _send(to_broker, request)
        answers.cancel()
        to_broker.close()
        to_client.close()

    async def _pass_answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, produced: set[int]
    ) -> None:
        # So that the client comes back here for every broker it is told of.
        address, own = (self._address(port) for port in (self._broker[1], self._port))
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                answer = (await _message(broker)).replace(address, own)
                (correlation,) = struct.unpack_from(">i", answer)
                if correlation in produced and self._refused is not None:
                    _send(to_client, self._refusal(answer, self._refused))
                    self._refused = None
                    self.refusals += 1
                _send(to_client, answer)

    def _address(self, port: int) -> bytes:
        return self._broker[0].encode() + struct.pack(">i", port)

    def _refusal(self, answer: bytes, correlation: int) -> bytes:
        # Behind the topic's name: a count of partitions (1 byte), the partition (4), error code, base offset.
        at = answer.index(self._topic) + len(self._topic) + 5
        verdict = struct.pack(">hq", _NOT_LEADER, -1)
        return struct.pack(">i", correlation) + answer[4:at] + verdict + answer[at + len(verdict) :]


async def _message(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(struct.pack(">i", len(message)) + message)
