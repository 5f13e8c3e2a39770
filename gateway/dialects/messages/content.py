"""Content blocks as chat parts and text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.dialects.messages.wire import Block, Source, invalid

BETWEEN_TEXTS = "\n"
"""What joins text blocks, as vLLM joins the text parts of a message."""

IMAGE_MARK = "[image]"
"""Stands in a tool's result where an image stood; the image follows in the user's message."""

_TELLS_ERROR = re.compile(r"\W*(?:\w+_)?error", re.IGNORECASE)


def image_part(block: Block, field: str) -> dict[str, Any]:
    """An image as a chat part: a URL, or the bytes as a data URL."""
    source = block.source
    if not isinstance(source, Source):
        raise invalid(f"{field}.source", "is missing: send a base64 or url source")
    if source.type == "base64" and source.data is not None and source.media_type:
        url = f"data:{source.media_type};base64,{source.data}"
    elif source.type == "url" and source.url:
        url = source.url
    else:
        raise invalid(f"{field}.source", f"of type {source.type!r} cannot be translated: send base64 or url")
    return {"type": "image_url", "image_url": {"url": url}}


def named(blocks: Iterable[Block], field: str) -> Iterator[tuple[str, Block]]:
    """Each block with its name, for faults."""
    return ((f"{field}.{place}", block) for place, block in enumerate(blocks))


def parts_of(blocks: Iterable[tuple[str, Block]]) -> list[dict[str, Any]]:
    """Chat parts of blocks that hold text or images; texts that touch are one part, empty ones none."""
    parts: list[dict[str, Any]] = []
    for field, block in blocks:
        if block.type == "image":
            parts.append(image_part(block, field))
            continue
        text = text_of(block, field)
        if not text:
            continue
        if parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += BETWEEN_TEXTS + text
        else:
            parts.append({"type": "text", "text": text})
    return parts


def content_of(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Chat content: plain text where there is nothing but text."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def text_of(block: Block, field: str) -> str:
    """The text of a block that is nothing but text. Raises `InvalidInput` for any other."""
    match block.type:
        case "text":
            if block.text is None:
                raise invalid(f"{field}.text", "is missing")
            return block.text
        case "document":
            return _headed(block.title, block.context, _document(block, field))
        case "search_result":
            source = block.source if isinstance(block.source, str) else None
            return _headed(block.title, source, _inner(block.content, f"{field}.content"))
        case "tool_reference":
            return block.tool_name or ""
        case other:
            raise invalid(f"{field}.type", f"is {other!r}, which cannot be translated for this engine")


def result_of(block: Block, field: str) -> tuple[str, list[dict[str, Any]]]:
    """A tool result's text, and its images as chat parts. An error that does not say so is marked."""
    content, images = block.content, []
    if isinstance(content, str):
        text = content
    elif isinstance(content, list):
        parts = parts_of(named(content, f"{field}.content"))
        images = [part for part in parts if part["type"] == "image_url"]
        text = BETWEEN_TEXTS.join(part.get("text", IMAGE_MARK) for part in parts)
    elif content is None:
        text = ""
    else:
        raise invalid(f"{field}.content", "must be a string or a list of content blocks")
    if block.is_error and not _TELLS_ERROR.match(text):
        text = f"Error: {text}" if text else "Error"
    return text, images


def _document(block: Block, field: str) -> str:
    source = block.source
    if isinstance(source, Source):
        if source.type == "text" and source.data is not None:
            return source.data
        if source.type == "content" and source.content is not None:
            return _inner(source.content, f"{field}.source.content")
    kind = source.type if isinstance(source, Source) else "none"
    raise invalid(f"{field}.source", f"of type {kind!r} cannot be translated: send the document as text")


def _inner(content: str | list[Block] | dict[str, Any] | None, field: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(field, "must be a string or a list of text blocks")
    return BETWEEN_TEXTS.join(text_of(block, here) for here, block in named(content, field))


def _headed(*lines: str | None) -> str:
    return BETWEEN_TEXTS.join(line for line in lines if line)
