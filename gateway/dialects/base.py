"""What a dialect must do: client request to canonical call, engine reply to client reply."""

from __future__ import annotations

from typing import Literal, Protocol

from gateway.canonical import ChatCall
from gateway.engine import EngineObject
from gateway.failures import Failure, nested_too_deeply


class ClientStream(Protocol):
    """One streamed reply. Pure: bytes come back, nothing is sent."""

    def feed(self, chunk: EngineObject) -> bytes:
        """Client bytes for one engine chunk; may be empty."""
        ...

    def keepalive(self) -> bytes:
        """What may be sent at any time while there is nothing to say, also before the first chunk."""
        ...

    def finish(self) -> bytes:
        """What ends the stream well. Sent only once the step is durable."""
        ...

    def fail(self, failure: Failure) -> bytes:
        """What ends the stream ill, wherever it stands."""
        ...


class Dialect(Protocol):
    """One wire protocol."""

    @property
    def protocol(self) -> Literal["chat_completions", "responses", "messages", "completions", "generate"]:
        """Name in captured steps."""
        ...

    @property
    def path(self) -> str:
        """Behind `/{trajectory_id}/{prompt_id}/v1/`."""
        ...

    def parse(self, body: bytes) -> ChatCall:
        """The client's request in canonical form. Raises `InvalidInput` that names the field."""
        ...

    def reply(self, call: ChatCall, engine: EngineObject) -> bytes:
        """The body of a reply that is not streamed."""
        ...

    def stream(self, call: ChatCall) -> ClientStream:
        """A fresh streamed reply."""
        ...

    def error(self, failure: Failure) -> bytes:
        """The body of an error reply."""
        ...


def parsed(dialect: Dialect, body: bytes) -> ChatCall:
    """The client's request in canonical form. Raises `InvalidInput` that names the field."""
    try:
        return dialect.parse(body)
    except RecursionError:
        raise nested_too_deeply() from None
