"""The client's side of each protocol: what is sent, and what of a reply is text, end or failure. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

History = Sequence[tuple[str, str]]
"""Role and text, in order."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One event of a stream. At most one field is set."""

    text: str = ""
    end: bool = False
    failure: str = ""


class Wire(Protocol):
    """One protocol."""

    name: str
    """As in captured steps."""
    path: str

    def body(self, history: History) -> dict[str, Any]:
        """The request, but for `stream`."""
        ...

    def text(self, reply: Mapping[str, Any]) -> str:
        """What a whole reply says."""
        ...

    def piece(self, data: bytes) -> Piece:
        """What one `data:` line of a stream says."""
        ...


class Chat:
    """OpenAI chat completions."""

    name, path = "chat_completions", "chat/completions"

    def body(self, history: History) -> dict[str, Any]:
        return {"messages": [{"role": role, "content": text} for role, text in history]}

    def text(self, reply: Mapping[str, Any]) -> str:
        return reply["choices"][0]["message"]["content"] or ""

    def piece(self, data: bytes) -> Piece:
        if data == b"[DONE]":
            return Piece(end=True)
        chunk = msgspec.json.decode(data)
        if error := chunk.get("error"):
            return Piece(failure=error["message"])
        return Piece(text="".join(choice["delta"].get("content") or "" for choice in chunk["choices"]))


class Responses:
    """OpenAI Responses."""

    name, path = "responses", "responses"

    def body(self, history: History) -> dict[str, Any]:
        kinds = {"user": "input_text", "assistant": "output_text"}
        return {
            "input": [
                {"type": "message", "role": role, "content": [{"type": kinds[role], "text": text}]}
                for role, text in history
            ],
            "store": False,
        }

    def text(self, reply: Mapping[str, Any]) -> str:
        messages = [item for item in reply["output"] if item["type"] == "message"]
        return "".join(part["text"] for item in messages for part in item["content"])

    def piece(self, data: bytes) -> Piece:
        event = msgspec.json.decode(data)
        if event["type"] == "response.completed":
            return Piece(end=True)
        if event["type"] in {"response.failed", "error"}:
            return Piece(failure=(event.get("response") or event)["error"]["message"])
        return Piece(text=event["delta"] if event["type"] == "response.output_text.delta" else "")


class Messages:
    """Anthropic Messages."""

    name, path = "messages", "messages"

    def body(self, history: History) -> dict[str, Any]:
        return {"max_tokens": 1_000_000, **Chat().body(history)}

    def text(self, reply: Mapping[str, Any]) -> str:
        return "".join(block["text"] for block in reply["content"] if block["type"] == "text")

    def piece(self, data: bytes) -> Piece:
        event = msgspec.json.decode(data)
        if event["type"] == "message_stop":
            return Piece(end=True)
        if event["type"] == "error":
            return Piece(failure=event["error"]["message"])
        return Piece(text=event.get("delta", {}).get("text") or "")


WIRES: tuple[Wire, ...] = (Chat(), Responses(), Messages())


@dataclass(frozen=True, slots=True)
class Kind:
    """A protocol, streamed or not."""

    wire: Wire
    stream: bool

    def __str__(self) -> str:
        return f"{self.wire.name}{' stream' if self.stream else ''}"

    def body(self, history: History) -> bytes:
        """The request's body."""
        fields = {"model": "default", **self.wire.body(history), "stream": self.stream}
        return msgspec.json.encode(fields)


KINDS = tuple(Kind(wire, stream) for wire in WIRES for stream in (True, False))
