"""Steps with what the tree compares of them: their whole prompts, none of which is ever written out."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentworld.contract.events import PromptDelta, StepCaptured, raw_json
from agentworld.contract.events.trajectories import StepRelation
from stream_processors.trajectories.id_tree import IdTree, Point

_SYSTEM = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class History:
    """A prompt, or a prompt and its response, as the tree holds it."""

    ids: Point
    """Of no ids where the engine gave none."""
    messages: tuple[int, ...] = ()
    """A number for the first message, the first two, …; equal numbers mean equal beginnings."""
    dialogue: tuple[int, ...] = ()
    """The same without system messages."""
    roles: tuple[str, ...] = ()
    tools: bytes | None = None
    """JSON."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One step as the tree sees it. `resolved` is false where its prompt could not be expanded."""

    step: StepCaptured
    resolved: bool
    prompt: History
    """Empty where it is not resolved."""
    leaf_ids: Point | None
    """The prompt's ids and the response's; none where there are none of either."""
    leaf_messages: tuple[int, ...]
    """The numbers of the prompt's messages and the sampled one, as sampled and as the client saw it."""
    tools: bytes
    """Digest; empty where no tools were offered."""

    @property
    def messages(self) -> tuple[int, ...]:
        """Those of its prompt: see `History`."""
        return self.prompt.messages

    @property
    def has_ids(self) -> bool:
        """Whether its prompt's ids are known."""
        return self.prompt.ids.depth > 0

    @property
    def started(self) -> tuple[int, str]:
        """Sort key: by request start."""
        return self.step.started_at_ms, self.step.step_id


@dataclass(frozen=True, slots=True)
class Link:
    """How a turn relates to its parent."""

    parent: str | None
    relation: StepRelation


def beginning(a: Sequence[int], b: Sequence[int]) -> int:
    """How many messages two prompts begin with alike, by the numbers of their `History`s."""
    return bisect_left(range(min(len(a), len(b))), True, key=lambda index: a[index] != b[index])


def turns_of(steps: Sequence[StepCaptured]) -> list[Turn]:
    """Each step with its whole prompt, by request start whatever the order they come in."""
    return sorted(_Turns(steps).all_turns(), key=lambda turn: turn.started)


class _Turns:
    def __init__(self, steps: Sequence[StepCaptured]) -> None:
        self._steps = steps
        self._by_id = {step.step_id: step for step in steps}
        self._tree = IdTree()
        self._nothing = History(ids=self._tree.root)
        self._canonical = _Canonical()
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._prompts: dict[str, History | None] = {}
        self._leaves: dict[str, History] = {}

    def all_turns(self) -> list[Turn]:
        for step_id in self._by_id:
            chain: dict[str, StepCaptured] = {}
            cursor: str | None = step_id
            while cursor in self._by_id and cursor not in self._prompts and cursor not in chain:
                chain[cursor] = self._by_id[cursor]
                cursor = chain[cursor].prompt.base_step_id
            for step in reversed(chain.values()):
                self._resolve(step)
        return [self._turn(step, self._prompts[step.step_id]) for step in self._steps]

    def _resolve(self, step: StepCaptured) -> None:
        """Note the step's prompt and what it leaves behind, its base's being noted already."""
        prompt = self._prompts[step.step_id] = self._prompt(step.prompt)
        if prompt is not None:
            message = raw_json(step.message)
            self._leaves[step.step_id] = self._followed(
                prompt, step.response_ids, [] if message is None else [message], prompt.tools
            )

    def _prompt(self, delta: PromptDelta) -> History | None:
        """What `expand_prompt` gives, refused where it would raise; a test holds the two together."""
        if delta.base_step_id is None:
            base = self._nothing
            if delta.keep_tokens or delta.keep_messages or delta.tools_kept:
                return None
        elif (found := self._leaves.get(delta.base_step_id)) is None:
            return None
        else:
            base = found
        if delta.keep_tokens > base.ids.depth or delta.keep_messages > len(base.messages):
            return None
        roles = base.roles[: delta.keep_messages]
        kept = History(
            ids=base.ids.up_to(len(range(base.ids.depth)[: delta.keep_tokens])),
            messages=base.messages[: delta.keep_messages],
            dialogue=base.dialogue[: sum(role not in _SYSTEM for role in roles)],
            roles=roles,
        )
        tools = base.tools if delta.tools_kept else raw_json(delta.tools)
        prompt = self._followed(kept, delta.append_ids, [bytes(m) for m in delta.append_messages], tools)
        whole = prompt.ids.depth == delta.prompt_tokens and self._tree.digest(prompt.ids) == delta.digest
        return prompt if whole else None

    def _followed(
        self, before: History, ids: Sequence[int], messages: Sequence[bytes], tools: bytes | None
    ) -> History:
        numbers, dialogue, roles = list(before.messages), list(before.dialogue), list(before.roles)
        for message in messages:
            digest, role = self._canonical.of(message)
            numbers.append(self._number(numbers, digest))
            roles.append(role)
            if role not in _SYSTEM:
                dialogue.append(self._number(dialogue, digest))
        return History(before.ids.extended(ids), tuple(numbers), tuple(dialogue), tuple(roles), tools)

    def _number(self, before: Sequence[int], digest: bytes) -> int:
        """Of the messages numbered `before`, followed by this one."""
        return self._numbers.setdefault((before[-1] if before else -1, digest), len(self._numbers))

    def _turn(self, step: StepCaptured, resolved: History | None) -> Turn:
        prompt = resolved or self._nothing
        said = [raw for m in (step.message, step.client_message) if (raw := raw_json(m))]
        replies = dict.fromkeys(self._canonical.of(raw)[0] for raw in said)
        tools = prompt.tools
        return Turn(
            step=step,
            resolved=resolved is not None,
            prompt=prompt,
            leaf_ids=self._leaves[step.step_id].ids if prompt.ids.depth and step.response_ids else None,
            leaf_messages=tuple(self._number(prompt.messages, reply) for reply in replies)
            if prompt.messages
            else (),
            tools=self._canonical.of(tools)[0] if tools not in {None, b"null", b"[]"} else b"",
        )


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
