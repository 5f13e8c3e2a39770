"""Content parts to chat content: text merged to one string, images and audio kept as parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.dialects.responses.fields import invalid
from gateway.dialects.responses.items import Part

_TEXT = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_DETAILS = frozenset({"auto", "low", "high"})

PART_SEPARATOR = "\n"
"""Between text parts of a message, as vLLM joins them for templates that take one string."""


def chat_content(content: str | list[Part] | None, where: str) -> str | list[dict[str, Any]]:
    """Content for a chat message. `where` names the field. Raises `InvalidInput`."""
    if content is None:
        raise invalid(f"`{where}` is missing: send a text or a list of parts")
    if isinstance(content, str):
        return content
    if all(part.type in _TEXT for part in content):
        return text_of(content, where, PART_SEPARATOR)
    return [_chat_part(part, f"{where}[{place}]") for place, part in enumerate(content)]


def text_of(content: str | Sequence[Part], where: str, separator: str) -> str:
    """Content that must be text alone, in one string. Raises `InvalidInput`."""
    if isinstance(content, str):
        return content
    texts = []
    for place, part in enumerate(content):
        if part.type not in _TEXT:
            raise invalid(f"`{where}[{place}].type` is {part.type[:64]!r}: only text can stand here")
        texts.append(_text(part, f"{where}[{place}]"))
    return separator.join(texts)


def _text(part: Part, where: str) -> str:
    if part.text is None:
        raise invalid(f"`{where}.text` is missing")
    return part.text


def _chat_part(part: Part, where: str) -> dict[str, Any]:
    if part.type in _TEXT:
        return {"type": "text", "text": _text(part, where)}
    if part.type == "input_image":
        if part.image_url is None:
            raise invalid(
                f"`{where}.image_url` is missing: send a URL or data URL; "
                "this gateway keeps no files that `file_id` could name"
            )
        image = {"url": part.image_url}
        if part.detail is not None:
            # Engines check against chat completions' three; "original" asks for the most.
            image["detail"] = part.detail if part.detail in _DETAILS else "high"
        return {"type": "image_url", "image_url": image}
    if part.type == "input_audio" and bytes(part.input_audio) != b"null":
        return {"type": "input_audio", "input_audio": part.input_audio}
    raise invalid(
        f"`{where}.type` is {part.type[:64]!r}, which engines do not take: "
        "send its text as `input_text`, or its pages as `input_image`"
    )
