"""The streamed reply of OpenAI's two completion protocols; each brings its own encoding of a chunk."""

from __future__ import annotations

from collections.abc import Callable

from gateway.canonical import ChatCall
from gateway.engine import EngineObject
from gateway.failures import Failure, error_body
from gateway.sse import sse_event

KEEP_ALIVE = b": keep-alive\n\n"
ENGINE_FIELDS = ("prompt_token_ids", "prompt_text", "weight_version", "weight_versions")
"""Of a reply or chunk: come only because the gateway asks for ids and versions."""


class OpenAiStream:
    """Chunks as the engine sent them, less what the client did not ask for."""

    def __init__(self, call: ChatCall, encode: Callable[[ChatCall, EngineObject], bytes]) -> None:
        self._call = call
        self._encode = encode

    def feed(self, chunk: EngineObject) -> bytes:
        """The chunk as an event; nothing for a usage chunk that only the gateway asked for."""
        if not self._call.wants_usage:
            if not chunk.choices and "usage" in chunk.fields:
                return b""
            chunk.fields.pop("usage", None)
        return sse_event(self._encode(self._call, chunk))

    def keepalive(self) -> bytes:
        """A comment, which every client's parser drops."""
        return KEEP_ALIVE

    def finish(self) -> bytes:
        """OpenAI's end of stream."""
        return sse_event(b"[DONE]")

    def fail(self, failure: Failure) -> bytes:
        """OpenAI's error object as an event; no `[DONE]` follows."""
        return sse_event(error_body(failure))
