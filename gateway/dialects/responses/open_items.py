"""Output items while they grow: each gives the events of its own life, and what it came to."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from gateway.dialects.responses.call import ToolOrigin
from gateway.dialects.responses.freeform import FreeformInput
from gateway.dialects.responses.reasoning import seal

Event = dict[str, Any]
"""One event of the stream, but for its sequence number."""
Status = Literal["in_progress", "completed", "incomplete"]


class OpenItem(Protocol):
    """An item that is being sampled."""

    def close(self, status: Status) -> list[Event]:
        """What ends the item, `response.output_item.done` last."""
        ...

    def item(self, status: Status) -> dict[str, Any]:
        """The item as it stands."""
        ...


def item_added(index: int, item: dict[str, Any]) -> Event:
    """An item begins."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _item_done(index: int, item: dict[str, Any]) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


class ReasoningItem:
    """Reasoning, as a summary of one part or as raw text of one part."""

    def __init__(self, item_id: str, index: int, *, as_summary: bool, sealed: bool) -> None:
        self._id, self._index = item_id, index
        self._as_summary, self._sealed = as_summary, sealed
        self._texts: list[str] = []
        place = "summary_index" if as_summary else "content_index"
        self._at = {"item_id": item_id, "output_index": index, place: 0}
        self._text = "response.reasoning_summary_text" if as_summary else "response.reasoning_text"
        self._part = "response.reasoning_summary_part" if as_summary else "response.content_part"

    def open(self) -> list[Event]:
        """The item and its one part begin."""
        return [
            item_added(self._index, self.item("in_progress")),
            {"type": f"{self._part}.added", **self._at, "part": self._whole("")},
        ]

    def add(self, text: str) -> Event:
        """More reasoning."""
        self._texts.append(text)
        return {"type": f"{self._text}.delta", **self._at, "delta": text}

    def close(self, status: Status) -> list[Event]:
        """The part and the item end."""
        text = "".join(self._texts)
        return [
            {"type": f"{self._text}.done", **self._at, "text": text},
            {"type": f"{self._part}.done", **self._at, "part": self._whole(text)},
            _item_done(self._index, self.item(status)),
        ]

    def item(self, status: Status) -> dict[str, Any]:
        """A reasoning item; sealed only once it is complete."""
        item: dict[str, Any] = {"type": "reasoning", "id": self._id, "summary": []}
        if status == "in_progress":
            return item
        text = "".join(self._texts)
        item["summary" if self._as_summary else "content"] = [self._whole(text)]
        if self._sealed:
            item["encrypted_content"] = seal(text)
        return item

    def _whole(self, text: str) -> dict[str, str]:
        return {"type": "summary_text" if self._as_summary else "reasoning_text", "text": text}


class MessageItem:
    """A message: parts of text, and of refusal where the engine refuses."""

    def __init__(self, item_id: str, index: int) -> None:
        self._id, self._index = item_id, index
        self._kind = ""
        self._texts: list[str] = []
        self._parts: list[dict[str, Any]] = []
        """Parts that are complete."""

    def open(self) -> list[Event]:
        """The item begins; its parts begin with their first text."""
        return [item_added(self._index, self.item("in_progress"))]

    def add(self, kind: Literal["output_text", "refusal"], text: str) -> list[Event]:
        """More of the message."""
        events: list[Event] = []
        if kind != self._kind:
            events += self._end_part()
            self._kind = kind
            added = {"type": "response.content_part.added", **self._at(), "part": _part(kind, "")}
            events.append(added)
        if text:
            self._texts.append(text)
            delta = {"type": f"response.{kind}.delta", **self._at(), "delta": text}
            events.append(_with_logprobs(kind, delta))
        return events

    def close(self, status: Status) -> list[Event]:
        """The last part and the item end."""
        return [*self._end_part(), _item_done(self._index, self.item(status))]

    def item(self, status: Status) -> dict[str, Any]:
        """A message item."""
        return {
            "type": "message",
            "id": self._id,
            "status": status,
            "role": "assistant",
            "content": list(self._parts),
        }

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._index, "content_index": len(self._parts)}

    def _end_part(self) -> list[Event]:
        if not self._kind:
            return []
        kind, text = self._kind, "".join(self._texts)
        key = "refusal" if kind == "refusal" else "text"
        done = _with_logprobs(kind, {"type": f"response.{kind}.done", **self._at(), key: text})
        part = _part(kind, text)
        ended = {"type": "response.content_part.done", **self._at(), "part": part}
        self._parts.append(part)
        self._kind, self._texts = "", []
        return [done, ended]


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "refusal":
        return {"type": kind, "refusal": text}
    return {"type": kind, "text": text, "annotations": [], "logprobs": []}


def _with_logprobs(kind: str, event: Event) -> Event:
    return event if kind == "refusal" else {**event, "logprobs": []}


class CallItem:
    """A call of a function or custom tool. It opens once its name is whole: with its first arguments."""

    def __init__(self, item_id: str, index: int, call_id: str, origin: ToolOrigin) -> None:
        self._index = index
        self._custom = FreeformInput() if origin.kind == "custom" else None
        self._key = "input" if self._custom else "arguments"
        self._events = (
            "response.custom_tool_call_input" if self._custom else "response.function_call_arguments"
        )
        self._at = {"item_id": item_id, "output_index": index}
        self._texts: list[str] = []
        self._head = {
            "type": "custom_tool_call" if self._custom else "function_call",
            "id": item_id,
            "call_id": call_id,
            "name": origin.name,
        }
        if origin.namespace is not None:
            self._head["namespace"] = origin.namespace

    def open(self) -> list[Event]:
        """The item begins."""
        return [item_added(self._index, self.item("in_progress"))]

    def add(self, arguments: str) -> list[Event]:
        """More arguments, as sampled; what they add to the input of a custom tool may be nothing."""
        return self._delta(self._custom.feed(arguments) if self._custom else arguments)

    def close(self, status: Status) -> list[Event]:
        """The arguments and the item end."""
        events = self._delta(self._custom.finish()) if self._custom else []
        done: Event = {"type": f"{self._events}.done", **self._at, self._key: "".join(self._texts)}
        if not self._custom:
            done["name"] = self._head["name"]
        return [*events, done, _item_done(self._index, self.item(status))]

    def item(self, status: Status) -> dict[str, Any]:
        """A function_call or custom_tool_call item."""
        return {**self._head, self._key: "".join(self._texts), "status": status}

    def _delta(self, text: str) -> list[Event]:
        if not text:
            return []
        self._texts.append(text)
        return [{"type": f"{self._events}.delta", **self._at, "delta": text}]
