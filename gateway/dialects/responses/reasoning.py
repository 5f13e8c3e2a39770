"""Reasoning that comes back: from the token this gateway sealed it in, else from its text."""

from __future__ import annotations

import base64
import binascii

from gateway.dialects.responses.content import text_of
from gateway.dialects.responses.fields import invalid
from gateway.dialects.responses.items import Item

_PREFIX = "agentworld-reasoning-1:"


def seal(text: str) -> str:
    """`text` as an opaque token, for clients that keep reasoning only by `encrypted_content`."""
    return _PREFIX + base64.b64encode(text.encode()).decode()


def reasoning_of(item: Item, where: str) -> str:
    """The reasoning of an item; empty where only another provider could read it."""
    sealed = item.encrypted_content
    if sealed is not None and sealed.startswith(_PREFIX):
        try:
            return base64.b64decode(sealed[len(_PREFIX) :], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as exc:
            raise invalid(f"`{where}.encrypted_content` was changed: send it back as it came") from exc
    if item.content and (text := text_of(item.content, f"{where}.content", "")):
        return text
    return text_of(item.summary or (), f"{where}.summary", "\n\n")
