"""What a client was told, read from the bytes it got. Pure, and none of it the gateway's own code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

_ENGINES_OWN = frozenset(
    {"prompt_token_ids", "token_ids", "response_token_ids", "input_ids", "output_ids", "sglext", "meta_info"}
)
"""Fields that no client here asked for."""
_KEEPALIVES = frozenset({"ping", "keepalive"})


@dataclass(slots=True)
class Call:
    """A tool call as the client saw it."""

    name: str = ""
    arguments: str | Object = ""
    """As text; an object where the protocol gives one."""
    freeform: bool = False
    """The arguments are the plain text for a custom tool."""

    def means(self, sampled: Mapping[str, Any]) -> bool:
        """Whether it is the sampled call. A namespace is no part of the client's name."""
        function = sampled["function"]
        if self.name != function["name"] and not function["name"].endswith(f"__{self.name}"):
            return False
        if self.freeform:
            return bool(json.loads(function["arguments"])["input"] == self.arguments)
        given = function["arguments"]
        return bool((json.loads(given) if isinstance(self.arguments, dict) else given) == self.arguments)


@dataclass(slots=True)
class Told:
    """One reply."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, Call] = field(default_factory=dict)
    """By their place in the reply."""
    keepalives: int = 0
    engines_own: list[str] = field(default_factory=list)
    """What of the engine's data for capturing shows."""

    def problems(self, sampled: Mapping[str, Any]) -> list[str]:
        """How it differs from the sampled turn, a chat message."""
        found = [f"the client got the engine's `{name}`" for name in dict.fromkeys(self.engines_own)]
        if self.text != (sampled.get("content") or ""):
            found.append("the client got another text than was sampled")
        if self.reasoning != (sampled.get("reasoning") or ""):
            found.append("the client got another reasoning than was sampled")
        told = [call for _, call in sorted(self.calls.items())]
        calls = sampled.get("tool_calls") or []
        if len(told) != len(calls) or not all(map(Call.means, told, calls)):
            found.append("the client got other tool calls than were sampled")
        return found


def read_reply(protocol: str, reply: bytes, *, stream: bool) -> Told:
    """Read a whole reply. Raises `ValueError` for one that is none of the protocol."""
    told = Told()
    objects = [json.loads(reply)] if not stream else list(_events(told, reply))
    told.engines_own = [name for part in objects for name in _engines_own(part)]
    objects = [part for part in objects if part.get("type") not in _KEEPALIVES]
    try:
        _READERS[protocol](told, objects, stream)
    except (KeyError, TypeError, IndexError) as exc:
        raise ValueError(f"a reply is no {protocol}: {exc!r}") from exc
    return told


def _events(told: Told, reply: bytes) -> Iterator[Object]:
    """The data of all events; keep-alives are counted."""
    for block in reply.decode().replace("\r\n", "\n").split("\n\n"):
        lines = block.split("\n")
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        told.keepalives += any(line.startswith(":") for line in lines)
        if data and data != "[DONE]":
            part = json.loads(data)
            told.keepalives += part.get("type") in _KEEPALIVES
            yield part


def _engines_own(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _engines_own(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in _ENGINES_OWN or (name == "logprobs" and item):
                yield name
            else:
                yield from _engines_own(item)


def _chat(told: Told, objects: Sequence[Object], stream: bool) -> None:
    for choice in (choice for part in objects for choice in part["choices"]):
        part = choice["delta" if stream else "message"]
        told.text += part.get("content") or ""
        told.reasoning += part.get("reasoning_content") or ""
        for place, piece in enumerate(part.get("tool_calls") or ()):
            call = told.calls.setdefault(piece.get("index", place), Call())
            call.name += piece["function"].get("name") or ""
            call.arguments += piece["function"].get("arguments") or ""


_DELTAS = {
    "response.output_text.delta": "text",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "arguments",
}


def _responses(told: Told, objects: Sequence[Object], stream: bool) -> None:
    response = objects[0]
    if stream:
        [response] = [part["response"] for part in objects if part["type"] == "response.completed"]
    for place, item in enumerate(response["output"]):
        match item["type"]:
            case "message":
                told.text += "".join(part["text"] for part in item["content"])
            case "reasoning":
                told.reasoning += "".join(part["text"] for part in item.get("content") or item["summary"])
            case "function_call":
                told.calls[place] = Call(item["name"], item["arguments"])
            case "custom_tool_call":
                told.calls[place] = Call(item["name"], item["input"], freeform=True)
    if stream:
        _check_deltas(told, objects)


def _check_deltas(told: Told, objects: Sequence[Object]) -> None:
    """The deltas come to what the response says in the end."""
    grown = {"text": "", "reasoning": "", "arguments": ""}
    for part in objects:
        if part["type"] in _DELTAS:
            grown[_DELTAS[part["type"]]] += part["delta"]
    arguments = "".join(str(call.arguments) for _, call in sorted(told.calls.items()))
    if grown != {"text": told.text, "reasoning": told.reasoning, "arguments": arguments}:
        raise ValueError("the deltas of a response do not come to what it says in the end")


def _messages(told: Told, objects: Sequence[Object], stream: bool) -> None:
    blocks: dict[int, Object] = {}
    if not stream:
        blocks = dict(enumerate(objects[0]["content"]))
    for part in objects if stream else ():
        if part["type"] == "content_block_start":
            blocks[part["index"]] = {**part["content_block"]}
        elif part["type"] == "content_block_delta":
            block, delta = blocks[part["index"]], part["delta"]
            for name in ("text", "thinking", "partial_json"):
                if name in delta:
                    block[name] = block.get(name, "") + delta[name]
    for place, block in blocks.items():
        told.text += block.get("text", "")
        told.reasoning += block.get("thinking", "")
        if block["type"] == "tool_use":
            told.calls[place] = Call(block["name"], block.get("partial_json", block["input"]))


_READERS: Mapping[str, Callable[[Told, Sequence[Object], bool], None]] = {
    "chat_completions": _chat,
    "responses": _responses,
    "messages": _messages,
}
