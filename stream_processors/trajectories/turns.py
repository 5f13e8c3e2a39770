"""Steps with what the tree compares of them: whole prompts as ids and as digests of canonical messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentworld.contract.delta import Prompt
from agentworld.contract.events import StepCaptured, raw_json
from agentworld.contract.events.trajectories import StepRelation
from agentworld.platform.resolved import expand_each


@dataclass(frozen=True, slots=True)
class Turn:
    """One step as the tree sees it. `resolved` is false where its prompt could not be expanded."""

    step: StepCaptured
    resolved: bool
    ids: Sequence[int]
    """The whole prompt's; empty where the engine gave none."""
    messages: tuple[bytes, ...]
    """Digests of the prompt's canonical messages."""
    roles: tuple[str, ...]
    replies: tuple[bytes, ...]
    """Digests of the sampled message, as sampled and as the client saw it."""
    tools: bytes
    """Digest; empty where no tools were offered."""

    @property
    def started(self) -> tuple[int, str]:
        """Sort key: by request start."""
        return self.step.started_at_ms, self.step.step_id


@dataclass(frozen=True, slots=True)
class Link:
    """How a turn relates to its parent."""

    parent: str | None
    relation: StepRelation


def turns_of(steps: Sequence[StepCaptured]) -> list[Turn]:
    """Each step with its whole prompt, by request start whatever the order they come in."""
    prompts = expand_each(steps)
    canonical = _Canonical()
    turns = []
    for step in steps:
        prompt = prompts[step.step_id]
        resolved = isinstance(prompt, Prompt)
        whole = prompt if isinstance(prompt, Prompt) else Prompt(ids=(), messages=(), tools=None)
        seen = [canonical.of(message) for message in whole.messages]
        replies = [canonical.of(raw)[0] for m in (step.message, step.client_message) if (raw := raw_json(m))]
        turns.append(
            Turn(
                step=step,
                resolved=resolved,
                ids=whole.ids,
                messages=tuple(digest for digest, _ in seen),
                roles=tuple(role for _, role in seen),
                replies=tuple(dict.fromkeys(replies)),
                tools=canonical.of(whole.tools)[0] if whole.tools not in {None, b"null", b"[]"} else b"",
            )
        )
    return sorted(turns, key=lambda turn: turn.started)


class _Canonical:
    """Digest and role of a message, each text parsed once: a history is sent again at every step."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, str]] = {}

    def of(self, raw: bytes | None) -> tuple[bytes, str]:
        raw = bytes(raw or b"null")
        if raw not in self._known:
            self._known[raw] = _digest_and_role(raw)
        return self._known[raw]


def _digest_and_role(raw: bytes) -> tuple[bytes, str]:
    try:
        value = _without_nulls(json.loads(raw))
        text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except (RecursionError, ValueError):  # nested too deep, a number too long: compared as it is spelt
        value, text = None, raw
    role = str(value.get("role", "")) if isinstance(value, dict) else ""
    return hashlib.blake2b(text, digest_size=16).digest(), role


def _without_nulls(value: Any) -> Any:
    """An absent field and a null one say the same, and so do the orders of keys."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
