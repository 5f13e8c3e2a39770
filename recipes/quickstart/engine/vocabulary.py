"""The vocabulary: 256 bytes and a few special tokens. Text has exactly one encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
BYTES = 256
SIZE = BYTES + len(SPECIALS)

END_OF_TEXT, IM_START, IM_END, CALL_OPEN, CALL_CLOSE, RESPONSE_OPEN, RESPONSE_CLOSE = range(BYTES, SIZE)

END_IDS = frozenset({END_OF_TEXT, IM_END})
"""Tokens that end a reply."""

SILENT_IDS = frozenset({END_OF_TEXT, IM_START, IM_END})
"""Tokens that never appear in a reply's text."""


def encode(text: str) -> list[int]:
    """The bytes of `text` as ids. Special tokens are never read from text."""
    return list(text.encode("utf-8", "replace"))


def encode_reply(text: str) -> list[int]:
    """As `encode`, but the tool-call marks are their special tokens: for echoed raw replies."""
    ids: list[int] = []
    while text:
        marks = [(at, mark) for mark in (CALL_OPEN, CALL_CLOSE) if (at := text.find(token_text(mark))) >= 0]
        if not marks:
            break
        at, mark = min(marks)
        ids += [*encode(text[:at]), mark]
        text = text[at + len(token_text(mark)) :]
    return ids + encode(text)


def token_bytes(token_id: int) -> bytes:
    """The bytes a token stands for."""
    return bytes([token_id]) if token_id < BYTES else SPECIALS[token_id - BYTES].encode()


def token_text(token_id: int) -> str:
    """A token for display; half a character shows as the replacement character."""
    return token_bytes(token_id).decode("utf-8", "replace")


def decode(ids: Iterable[int]) -> str:
    """Ids as text, special tokens included."""
    return b"".join(map(token_bytes, ids)).decode("utf-8", "replace")


def split(ids: Sequence[int], separator: int) -> list[list[int]]:
    """`ids` cut at each `separator`, as `str.split` does."""
    parts: list[list[int]] = [[]]
    for token_id in ids:
        if token_id == separator:
            parts.append([])
        else:
            parts[-1].append(token_id)
    return parts
