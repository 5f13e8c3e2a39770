"""What went over the wire between the clients and the gateway, byte for byte.

`Wire` is a plain TCP relay before the gateway: it changes nothing, so the clients are the gateway's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import h11

from infra.local.ports import LOOPBACK

_CHUNK_BYTES = 64 * 1024
_MAX_HEAD_BYTES = 1024 * 1024
_START_S = 10.0
STEP_ID = "x-agentworld-step-id"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a client, and what it was answered."""

    method: str
    path: str
    """With the query."""
    body: bytes
    status: int
    """0 where nothing came back."""
    step_id: str
    """As told in the reply's headers; empty where it tells none."""
    reply: bytes
    whole: bool
    """Whether the reply came to its end."""

    @property
    def answered(self) -> bool:
        """Whether the client had its whole answer."""
        return self.whole and self.status == 200

    @property
    def refused(self) -> bool:
        """Whether the answer was an error."""
        return self.status >= 400


@dataclass(slots=True)
class _Connection:
    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)
    open: bool = True


class Wire:
    """Relays to `port` on the loopback interface from entry to exit."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        """Where it listens."""
        self._connections: list[_Connection] = []
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_START_S):
            raise TimeoutError("the relay before the gateway did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_START_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relay, LOOPBACK, 0)
        self.port = int(server.sockets[0].getsockname()[1])
        self._started.set()
        await self._stopping.wait()
        server.close()

    async def _relay(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        connection = _Connection()
        self._connections.append(connection)
        with contextlib.ExitStack() as closing:
            closing.callback(setattr, connection, "open", False)
            closing.callback(back.close)
            gateway, on = await asyncio.open_connection(LOOPBACK, self._target)
            closing.callback(on.close)
            asking = asyncio.create_task(_pump(client, on, connection.asked))
            answering = asyncio.create_task(_pump(gateway, back, connection.answered))
            # Either side's end ends both, as it would without a relay between them.
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
            answering.cancel()

    def exchanges(self, prefix: str) -> list[Exchange]:
        """Those whose path begins with `prefix`, connection by connection."""
        found = (exchange for c in list(self._connections) for exchange in _read(c))
        return [exchange for exchange in found if exchange.path.startswith(prefix)]

    def is_open(self, prefix: str) -> bool:
        """Whether a connection that asked for such a path is still open."""
        mark = b" " + prefix.encode()
        return any(c.open and mark in c.asked for c in list(self._connections))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: bytearray) -> None:
    with contextlib.suppress(OSError):
        while part := await source.read(_CHUNK_BYTES):
            kept += part
            sink.write(part)
            await sink.drain()


def _read(connection: _Connection) -> Iterator[Exchange]:
    """The exchanges of a connection; bytes that are no HTTP end them."""
    asked = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
    answered = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
    for parser, data in ((asked, connection.asked), (answered, connection.answered)):
        parser.receive_data(bytes(data))
        parser.receive_data(b"")
    while True:
        request, body, whole = _message(asked)
        if not isinstance(request, h11.Request) or not whole:
            return
        # h11 reads a reply only to a request that it was told of, and goes on only after a reply.
        answered.send(
            h11.Request(method=request.method, target=request.target, headers=[("host", "gateway")])
        )
        answered.send(h11.EndOfMessage())
        response, reply, whole = _message(answered)
        told = dict(response.headers) if isinstance(response, h11.Response) else {}
        yield Exchange(
            method=request.method.decode(),
            path=request.target.decode(),
            body=body,
            status=response.status_code if isinstance(response, h11.Response) else 0,
            step_id=told.get(STEP_ID.encode(), b"").decode(),
            reply=reply,
            whole=whole,
        )
        asked.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        asked.send(h11.EndOfMessage())
        if asked.our_state is not h11.DONE or answered.their_state is not h11.DONE:
            return
        asked.start_next_cycle()
        answered.start_next_cycle()


def _message(parser: h11.Connection) -> tuple[h11.Event | None, bytes, bool]:
    """Head, body, and whether it is whole, of the next message."""
    head, body = None, bytearray()
    try:
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request | h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return head, bytes(body), True
            elif not isinstance(event, h11.InformationalResponse):
                return head, bytes(body), False
    except h11.RemoteProtocolError:
        return head, bytes(body), False
