"""The vocabulary: 256 bytes, some words, and a few special tokens.

Text is encoded from left to right by the longest piece that fits. A model may spell a word by its
letters: then the same text encodes otherwise than it was sampled, as with any real tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from recipes.quickstart.engine.pieces import PIECES

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
_TOKENS = [bytes([value]) for value in range(BYTES)]
_TOKENS += [text.encode() for text in (*SPECIALS, *PIECES) if len(text) > 1]
SIZE = len(_TOKENS)

END_OF_TEXT, IM_START, IM_END, CALL_OPEN, CALL_CLOSE, RESPONSE_OPEN, RESPONSE_CLOSE = range(
    BYTES, BYTES + len(SPECIALS)
)

END_IDS = frozenset({END_OF_TEXT, IM_END})
"""Tokens that end a reply."""

SILENT_IDS = frozenset({END_OF_TEXT, IM_START, IM_END})
"""Tokens that never appear in a reply's text."""

_IDS = {token: at for at, token in enumerate(_TOKENS) if not BYTES <= at < BYTES + len(SPECIALS)}
_SPLIT = re.compile(b"|".join(map(re.escape, sorted(_IDS, key=len, reverse=True))), re.DOTALL)


def encode(text: str) -> list[int]:
    """The bytes of `text` as ids. Special tokens are never read from text."""
    return [_IDS[piece] for piece in _SPLIT.findall(text.encode("utf-8", "replace"))]


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
    return _TOKENS[token_id]


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
