"""Prompts as deltas against an earlier step, and the only code that undoes them.

The *leaf* of a step is everything a next turn can build on: its prompt ids followed
by its response ids, and its messages followed by the sampled message. A prompt keeps
the first `keep_tokens` ids and `keep_messages` messages of a base's leaf and appends
the rest. Without a base everything is appended.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from agentworld.contract.errors import IntegrityError
from agentworld.contract.events.base import PromptDelta, RawJson, TokenId, raw_json


@dataclass(frozen=True, slots=True)
class Leaf:
    """A step's prompt and response, as a base for the next prompt."""

    step_id: str
    ids: Sequence[TokenId]
    """Prompt ids, then response ids."""
    messages: Sequence[bytes]
    """JSON of each prompt message, then of the sampled message."""
    tools: bytes | None
    """JSON of the request's tool list."""

    def size_bytes(self) -> int:
        """About what a cache entry costs."""
        return 8 * len(self.ids) + sum(map(len, self.messages)) + len(self.tools or b"")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole prompt: token ids (empty where the engine gave none), messages, tools."""

    ids: Sequence[TokenId]
    messages: Sequence[bytes]
    tools: bytes | None


class _Step(Protocol):
    @property
    def step_id(self) -> str: ...
    @property
    def prompt(self) -> PromptDelta: ...
    @property
    def response_ids(self) -> Sequence[TokenId]: ...
    @property
    def message(self) -> RawJson: ...


def ids_digest(ids: Sequence[TokenId]) -> str:
    """16 hex digits over the ids as little-endian uint32 (BLAKE2b-64)."""
    packed = array("I", ids)
    return hashlib.blake2b(packed.tobytes(), digest_size=8).hexdigest()


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Length of the longest common prefix, by halving: slices compare in C."""
    if type(a) is not type(b):  # a slice of a list never equals one of a tuple
        a, b = list(a), list(b)
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def shorten(prompt: Prompt, leaves: Iterable[Leaf]) -> PromptDelta:
    """Encode `prompt` against the leaf it shares most with; ties go to the first leaf."""
    best: Leaf | None = None
    best_keep = (0, 0)
    for leaf in leaves:
        keep = (common_prefix(leaf.ids, prompt.ids), common_prefix(leaf.messages, prompt.messages))
        if keep > best_keep:
            best, best_keep = leaf, keep
    keep_tokens, keep_messages = best_keep
    tools_kept = best is not None and prompt.tools is not None and best.tools == prompt.tools
    return PromptDelta(
        base_step_id=best.step_id if best else None,
        keep_tokens=keep_tokens,
        append_ids=list(prompt.ids[keep_tokens:]),
        keep_messages=keep_messages,
        append_messages=[msgspec.Raw(m) for m in prompt.messages[keep_messages:]],
        tools=msgspec.UNSET if prompt.tools is None or tools_kept else msgspec.Raw(prompt.tools),
        tools_kept=tools_kept,
        prompt_tokens=len(prompt.ids),
        digest=ids_digest(prompt.ids),
    )


def expand_prompt(delta: PromptDelta, base: Leaf | None) -> Prompt:
    """Undo one delta. Raises `IntegrityError` where the base is not the one named or too short."""
    if delta.base_step_id is not None and (base is None or base.step_id != delta.base_step_id):
        raise IntegrityError(f"base step {delta.base_step_id} is missing")
    if delta.base_step_id is None:
        if delta.keep_tokens or delta.keep_messages or delta.tools_kept:
            raise IntegrityError("the delta keeps a part of a base but names none")
        base = Leaf(step_id="", ids=(), messages=(), tools=None)
    assert base is not None
    if delta.keep_tokens > len(base.ids) or delta.keep_messages > len(base.messages):
        raise IntegrityError(
            f"the delta keeps {delta.keep_tokens} tokens and {delta.keep_messages} messages of base "
            f"{base.step_id}, which has {len(base.ids)} and {len(base.messages)}"
        )
    ids = [*base.ids[: delta.keep_tokens], *delta.append_ids]
    if len(ids) != delta.prompt_tokens or ids_digest(ids) != delta.digest:
        raise IntegrityError(f"expanded prompt has {len(ids)} tokens and another digest than captured")
    messages = [*base.messages[: delta.keep_messages], *(bytes(m) for m in delta.append_messages)]
    return Prompt(ids=ids, messages=messages, tools=base.tools if delta.tools_kept else raw_json(delta.tools))


def leaf_of(step: _Step, prompt: Prompt) -> Leaf:
    """The leaf that `step` leaves behind, given its whole prompt."""
    message = raw_json(step.message)
    return Leaf(
        step_id=step.step_id,
        ids=[*prompt.ids, *step.response_ids],
        messages=[*prompt.messages, *([message] if message is not None else [])],
        tools=prompt.tools,
    )


def expand(steps: Iterable[_Step]) -> dict[str, Prompt]:
    """Whole prompts of a trajectory's steps, by step id; bases may stand in any order.

    Raises `IntegrityError` on a base that is missing, circular, or does not fit.
    """
    by_id: Mapping[str, _Step] = {step.step_id: step for step in steps}
    prompts: dict[str, Prompt] = {}
    leaves: dict[str, Leaf] = {}
    for step_id in by_id:
        chain: list[_Step] = []
        cursor: str | None = step_id
        while cursor is not None and cursor not in prompts:
            step = by_id.get(cursor)
            if step is None:
                raise IntegrityError(f"base step {cursor} is missing")
            if len(chain) > len(by_id):
                raise IntegrityError(f"step {step_id} has itself as a base")
            chain.append(step)
            cursor = step.prompt.base_step_id
        for step in reversed(chain):
            base_id = step.prompt.base_step_id
            prompt = expand_prompt(step.prompt, leaves[base_id] if base_id else None)
            prompts[step.step_id] = prompt
            leaves[step.step_id] = leaf_of(step, prompt)
    return {step_id: prompts[step_id] for step_id in by_id}
