"""The conversation that a client names itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_WINDOW = re.compile(r":\d+$")
"""OpenClaw's `prompt_cache_key` is `<session>:<compactions>`."""


@dataclass(frozen=True, slots=True)
class Named:
    """A conversation by the client's own word."""

    key: str
    """Kind of id and id."""
    parent: str | None = None
    """The conversation that began this one, in the same form."""


def named(ids: Mapping[str, str]) -> Named | None:
    """The conversation that ids from headers and body name, if any; the surest kind first.

    Codex shares `prompt_cache_key` between a thread and its children, and Claude Code its session
    between agents, so the finer id decides.
    """
    if thread := ids.get("thread-id"):
        parent = ids.get("x-codex-parent-thread-id")
        return Named(f"thread:{thread}", f"thread:{parent}" if parent and parent != thread else None)
    if session := ids.get("x-claude-code-session-id"):
        root = f"claude:{session}"
        agent = ids.get("x-claude-code-agent-id")
        return Named(f"{root}:{agent}", root) if agent else Named(root)
    if session := ids.get("x-session-id"):
        parent = ids.get("x-parent-session-id")
        return Named(f"session:{session}", f"session:{parent}" if parent and parent != session else None)
    for name in ("conversation_id", "session_id", "session-id"):
        if value := ids.get(name):
            return Named(f"session:{value}")
    if key := ids.get("prompt_cache_key"):
        return Named(f"cache:{_WINDOW.sub('', key)}")
    return None
