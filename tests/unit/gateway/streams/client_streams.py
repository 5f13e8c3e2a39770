"""What a client of each protocol reads out of the bytes that it gets, as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["text", "reasoning", "arguments"]

STREAMED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "hi"}], "stream": True, "model": "m"},
    "responses": {"input": "hi", "stream": True, "model": "m"},
    "messages": {
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "model": "m",
        "max_tokens": 9,
    },
    "completions": {"prompt": "hi", "stream": True, "model": "m"},
}
"""The least that each streaming protocol asks with, by path."""

_RESPONSES: dict[str, Kind] = {
    "response.output_text.delta": "text",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "arguments",
}
_MESSAGES: dict[str, Kind] = {"text": "text", "thinking": "reasoning", "partial_json": "arguments"}


@dataclass(frozen=True)
class Piece:
    """What one event adds."""

    kind: Kind
    text: str
    choice: int = 0
    call: int = 0
    """Where the protocol puts the tool call: its number, item or block."""


@dataclass
class ClientReader:
    """Reads one streamed reply."""

    path: str
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    """Of tools called, by choice and call."""
    logprobs: dict[int, list[float]] = field(default_factory=dict)
    ended: bool = False
    """Whether the protocol's last event came."""
    _rest: bytes = b""
    _pieces: list[Piece] = field(default_factory=list)

    def feed(self, part: bytes) -> list[Piece]:
        """Pieces that `part` completes."""
        *events, self._rest = (self._rest + part).split(b"\n\n")
        found = [piece for event in events for piece in self._read(event) if piece.text]
        self._pieces += found
        return found

    def joined(self, kind: Kind, choice: int = 0) -> str:
        """All text of that kind."""
        return "".join(p.text for p in self._pieces if (p.kind, p.choice) == (kind, choice))

    def calls(self, choice: int = 0) -> list[tuple[str, str]]:
        """Name and arguments of each tool call, in order."""
        return [
            (name, self._joined_call(of, call)) for (of, call), name in self.names.items() if of == choice
        ]

    def _joined_call(self, choice: int, call: int) -> str:
        where = ("arguments", choice, call)
        return "".join(p.text for p in self._pieces if (p.kind, p.choice, p.call) == where)

    def _read(self, event: bytes) -> Iterator[Piece]:
        for line in event.split(b"\n"):
            if line == b"data: [DONE]":
                self.ended = True
            elif line.startswith(b"data: "):
                data = json.loads(line[6:])
                assert "error" not in data or data["error"] is None, data
                if self.path == "responses":
                    yield from self._responses(data)
                elif self.path == "messages":
                    yield from self._messages(data)
                else:
                    for choice in data["choices"]:
                        yield from self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> Iterator[Piece]:
        index, logprobs = choice["index"], choice.get("logprobs")
        if self.path == "completions":
            yield Piece("text", choice["text"], index)
            self.logprobs.setdefault(index, []).extend(logprobs["token_logprobs"] if logprobs else ())
            return
        delta = choice["delta"]
        yield Piece("reasoning", delta.get("reasoning_content") or "", index)
        yield Piece("text", delta.get("content") or "", index)
        for call in delta.get("tool_calls") or ():
            if name := call["function"].get("name"):
                self.names[index, call["index"]] = name
            yield Piece("arguments", call["function"].get("arguments") or "", index, call["index"])
        values = [item["logprob"] for item in logprobs["content"]] if logprobs else []
        self.logprobs.setdefault(index, []).extend(values)

    def _responses(self, data: dict[str, Any]) -> Iterator[Piece]:
        self.ended |= data["type"] in {"response.completed", "response.incomplete"}
        if data["type"] == "response.output_item.added" and data["item"]["type"] == "function_call":
            self.names[0, data["output_index"]] = data["item"]["name"]
        if kind := _RESPONSES.get(data["type"]):
            yield Piece(kind, data["delta"], 0, data["output_index"])

    def _messages(self, data: dict[str, Any]) -> Iterator[Piece]:
        self.ended |= data["type"] == "message_stop"
        if data["type"] == "content_block_start" and data["content_block"]["type"] == "tool_use":
            self.names[0, data["index"]] = data["content_block"]["name"]
        if data["type"] == "content_block_delta":
            for name, kind in _MESSAGES.items():
                if name in data["delta"]:
                    yield Piece(kind, data["delta"][name], 0, data["index"])
