"""Input items as clients send them: one loose shape for every type, checked where it is used."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.dialects.responses.fields import field_error, invalid

ITEM_TYPES = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
    }
)
"""Items that have a place in a chat conversation."""


class Part(msgspec.Struct):
    """One piece of content: text, image, audio or refusal."""

    type: str = "input_text"
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    input_audio: msgspec.Raw = msgspec.Raw(b"null")


class Item(msgspec.Struct):
    """One input item; which fields matter follows from `type`."""

    type: str | None = None
    """None for a message in its short form."""
    role: str | None = None
    content: str | list[Part] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    action: msgspec.Raw = msgspec.Raw(b"null")


class _Kind(msgspec.Struct):
    type: str | None = None
    role: str | None = None


_input = msgspec.json.Decoder(str | list[Item])
_kinds = msgspec.json.Decoder(list[_Kind])


def read_input(fields: Mapping[str, msgspec.Raw]) -> list[Item]:
    """The `input` field as items that can all be translated. Raises `InvalidInput`."""
    raw = fields.get("input")
    if raw is None or bytes(raw) == b"null":
        raise invalid("`input` is missing: send a text, or the list of items of the whole conversation")
    try:
        items = _input.decode(raw)
    except msgspec.MsgspecError as exc:
        _check_kinds(raw)
        raise invalid(field_error("input", exc)) from exc
    if isinstance(items, str):
        return [Item(type="message", role="user", content=items)]
    for place, item in enumerate(items):
        item.type = _checked_type(item, place)
    return items


def _check_kinds(raw: msgspec.Raw) -> None:
    """An item that is not supported at all is a better explanation than its unexpected fields."""
    try:
        kinds = _kinds.decode(raw)
    except msgspec.MsgspecError:
        return
    for place, kind in enumerate(kinds):
        _checked_type(kind, place)


def _checked_type(item: Item | _Kind, place: int) -> str:
    kind = item.type or ("message" if item.role is not None else "item_reference")
    if kind == "item_reference":
        raise invalid(
            f"`input[{place}]` refers to an item kept by a server; this gateway keeps none: "
            "send the item itself"
        )
    if kind not in ITEM_TYPES:
        raise invalid(
            f"`input[{place}].type` is {kind[:64]!r}, which has no place in a chat conversation: "
            "leave the item out, or send what it says as a message"
        )
    return kind
