"""Engine answers in any shape and cut in any way, and what a client makes of the events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from gateway.engine import Answer, EngineObject
from gateway.sse import SseParser

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", " ", "\n\n", "\n\nHi ", "é😀\n"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3).map(json.dumps) | st.just("")


@dataclass
class Sampled:
    """A whole answer."""

    reasoning: str
    content: str
    tools: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments."""
    finish: str = "stop"

    def reply(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content, "reasoning": self.reasoning}
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(self.tools)
        ]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {
            "id": "x",
            "model": "tiny",
            "choices": [choice],
            "prompt_token_ids": [1, 2],
            "usage": self._usage,
        }

    @property
    def _usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 2, "completion_tokens": 5}

    def deltas(self) -> list[dict[str, Any]]:
        """One delta per character, in the order in which engines send them."""
        found: list[dict[str, Any]] = [{"reasoning": c} for c in self.reasoning]
        found += [{"content": c} for c in self.content]
        for i, (name, arguments) in enumerate(self.tools):
            head = {"index": i, "id": f"call_{i}", "type": "function", "function": {"name": name[:1]}}
            found.append({"tool_calls": [head]})
            found += [{"tool_calls": [{"index": i, "function": {"name": c}}]} for c in name[1:]]
            found += [{"tool_calls": [{"index": i, "function": {"arguments": c}}]} for c in arguments]
        return found

    def chunks(self, cuts: list[bool]) -> list[EngineObject]:
        """Neighbouring deltas joined except where `cuts` (repeated as needed) says so."""
        joined: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for place, delta in enumerate(self.deltas()):
            if cuts[place % len(cuts)] or not _join(joined[-1], delta):
                joined.append(json.loads(json.dumps(delta)))
        bodies: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in joined
        ]
        bodies[0]["prompt_token_ids"] = [1, 2]
        bodies.append({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]})
        bodies.append({"choices": [], "usage": self._usage})
        return [EngineObject.parse(json.dumps({"id": "x", "model": "tiny", **b}).encode()) for b in bodies]

    def captured(self) -> bytes:
        """The canonical message that the gateway captures."""
        answer = Answer()
        answer.add(EngineObject.parse(json.dumps(self.reply()).encode()), "message")
        message = answer.choices[0].message
        assert message is not None
        return bytes(message)


def _join(last: dict[str, Any], delta: dict[str, Any]) -> bool:
    if "tool_calls" not in delta:
        for key, value in delta.items():
            if "tool_calls" in last or (key == "reasoning" and last.get("content")):
                return False
            last[key] = last.get(key, "") + value
        return True
    part = delta["tool_calls"][0]
    parts = last.setdefault("tool_calls", [])
    if not parts or parts[-1]["index"] != part["index"]:
        parts.append(json.loads(json.dumps(part)))
        return True
    function = parts[-1]["function"]
    for key, value in part["function"].items():
        function[key] = function.get(key, "") + value
    return True


TOOLS = st.lists(st.tuples(st.sampled_from(["Bash", "Read", "f"]), ARGUMENTS), max_size=3)
SAMPLED = st.builds(Sampled, TEXTS, TEXTS, TOOLS, st.sampled_from(["stop", "length", "tool_calls"]))


def assemble(events: bytes) -> dict[str, Any]:
    """The Message that a client puts together. Asserts that the events come in a right order."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    opened: int | None = None
    for data in SseParser().feed(events):
        event = json.loads(data)
        match event["type"]:
            case "message_start":
                assert not message
                message = event["message"]
            case "content_block_start":
                assert opened is None
                assert event["index"] == len(message["content"])
                opened = event["index"]
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert opened is not None
                assert event["index"] == opened
                kind, value = next((k, v) for k, v in event["delta"].items() if k != "type")
                if kind == "partial_json":
                    inputs[opened] = inputs.get(opened, "") + value
                else:
                    message["content"][opened][kind] += value
            case "content_block_stop":
                assert event["index"] == opened
                if opened in inputs and inputs[opened].strip():
                    message["content"][opened]["input"] = json.loads(inputs[opened])
                opened = None
            case "message_delta":
                assert opened is None
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case "message_stop":
                message["stopped"] = True
    assert message.pop("stopped")
    return message
