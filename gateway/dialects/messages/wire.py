"""What stands in a Messages request, and how a fault in it is named."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from agentworld.contract.errors import InvalidInput

T = TypeVar("T")

NOTHING = msgspec.Raw(b"null")


class Source(msgspec.Struct):
    """Where the bytes of an image or a document are."""

    type: str = ""
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: str | list[Block] | None = None


class Block(msgspec.Struct):
    """One content block; which fields count follows from `type`. Others (`cache_control`) are ignored."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str | None = None
    content: str | list[Block] | dict[str, Any] | None = None
    is_error: bool | None = None
    source: Source | str | None = None
    title: str | None = None
    context: str | None = None
    tool_name: str | None = None


class Message(msgspec.Struct):
    """One turn."""

    role: str
    content: str | list[Block]


class Tool(msgspec.Struct):
    """A tool; without `input_schema` it is one that Anthropic defines."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = NOTHING
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """Which tools the model may or must call."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Format(msgspec.Struct):
    """A form that the answer must have."""

    type: str
    schema: msgspec.Raw = NOTHING


class OutputConfig(msgspec.Struct):
    """How to answer. `effort` is not for the engine."""

    format: Format | None = None


class Metadata(msgspec.Struct):
    """About the caller."""

    user_id: str | None = None


def invalid(field: str, problem: str) -> InvalidInput:
    """A 400 that names the field, in Anthropic's dotted form."""
    return InvalidInput(f"`{field}` {problem}", code="invalid_request", status=400)


def read(fields: dict[str, msgspec.Raw], name: str, expected: type[T]) -> T | None:
    """Field `name`, or none where it is absent or null. Raises `InvalidInput` that says where it is wrong."""
    raw = fields.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=expected)
    except msgspec.MsgspecError as exc:
        problem, _, path = str(exc).partition(" - at `$")
        place = re.sub(r"\[(\d+)\]", r".\1", path.rstrip("`"))
        raise invalid(name + place, f"cannot be read: {problem[:1].lower()}{problem[1:]}") from exc


_ESCAPE = re.compile(
    rb"\\(?:u(d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|u(d[89a-f][0-9a-f]{2})|.)", re.IGNORECASE | re.DOTALL
)


def without_lone_surrogates(body: bytes) -> bytes:
    r"""JSON in which half of a surrogate pair (JavaScript cuts strings so) has become `\ufffd`."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[2] else found[0], body)
