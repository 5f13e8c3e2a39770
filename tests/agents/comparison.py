"""What the engine served and what the client sent and got, against what the log holds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import msgspec

from agentworld.contract.delta import Prompt, common_prefix, expand
from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import StepCaptured, raw_json
from tests.agents.engine_log import Served

PrefixClass = Literal["exact", "rewritten", "broken"]
"""How a prompt goes on from the turn before it.

`exact`: it begins with that turn's prompt and the ids sampled then. `rewritten`: with the prompt, but the
sampled turn came back changed. `broken`: something before the sampled turn changed.
"""
PREFIX_CLASSES: tuple[PrefixClass, ...] = ("exact", "rewritten", "broken")
"""From best to worst."""
ABORTED = "abort"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One trajectory, as the engine knows it."""

    captured: int
    """Replies of the engine that stand in the log."""
    ids_exact: bool
    """Prompt and response ids are the engine's, in every step."""
    logprobs_aligned: bool
    """One log-probability per sampled token, the engine's, in every step."""
    prompts_exact: bool
    """The expanded messages and tools are the engine's, byte for byte, in every step."""
    prefix_class: PrefixClass | None
    """The worst among consecutive turns of the main conversation; None with fewer than two."""
    prefix_kept: float | None
    """The least share of a turn, prompt and response, that begins the next prompt."""
    prompts: Mapping[str, Prompt]
    """Whole prompts by step id; none where they cannot be expanded."""
    problems: Sequence[str] = field(default_factory=list)


def compare(
    served: Sequence[Served], steps: Sequence[StepCaptured], *, left: Container[str] = ()
) -> Comparison:
    """Match replies and steps by the engine's id of the completion.

    `left`: fingerprints of the requests whose client went away before its reply was whole.
    """
    problems = []
    by_reply = {step.engine.request_id: step for step in steps}
    if missing := [reply.id for reply in served if reply.id not in by_reply]:
        problems.append(f"{len(missing)} of {len(served)} calls are not in the log")
    if twice := [name for name, count in Counter(step.step_id for step in steps).items() if count > 1]:
        problems.append(f"captured more than once: {', '.join(twice)}")
    known = {reply.id for reply in served}
    for step in steps:
        # A client may leave before the engine has said anything.
        unheard = step.status == "cancelled" and step.request.fingerprint in left
        if step.engine.request_id not in known and not unheard:
            reason = step.error.message if step.error else "the engine knows nothing of it"
            problems.append(f"a step is {step.status}: {reason}")
    try:
        prompts = expand(steps)
    except IntegrityError as exc:
        prompts = {}
        problems.append(f"prompts cannot be expanded: {exc}")
    matched = [(reply, by_reply[reply.id]) for reply in served if reply.id in by_reply]
    for reply, step in matched:
        problems += _problems(reply, step, may_be_cut=step.request.fingerprint in left)
    prefixes = _prefixes([step for reply, step in matched if reply.kind == "turn"], prompts)
    return Comparison(
        captured=len(matched),
        ids_exact=bool(matched) and all(_ids_exact(r, s, prompts.get(s.step_id)) for r, s in matched),
        logprobs_aligned=bool(matched) and all(_aligned(reply, step) for reply, step in matched),
        prompts_exact=bool(matched) and all(_prompt_exact(r, prompts.get(s.step_id)) for r, s in matched),
        prefix_class=max((name for name, _ in prefixes), key=PREFIX_CLASSES.index, default=None),
        prefix_kept=min((share for _, share in prefixes), default=None),
        prompts=prompts,
        problems=problems,
    )


def _problems(reply: Served, step: StepCaptured, *, may_be_cut: bool) -> list[str]:
    found = []
    cut = step.status == "cancelled" and may_be_cut
    if step.status != "ok" and not cut:
        reason = f": {step.error.message}" if step.error else ""
        found.append(f"a step is {step.status}, not ok{reason}")
    if reply.finish_reason == ABORTED and not cut:
        found.append("the engine was left before its reply was whole, and no client had gone")
    if step.integrity and not cut:
        found.append(f"a step failed the checks {', '.join(step.integrity)}")
    if step.request.stream != reply.stream:
        found.append("streaming was asked of the engine otherwise than by the client")
    if not cut and _said(step) != _spoken(reply.message):
        found.append("a step's message is not what the engine sampled")
    return found


def _said(step: StepCaptured) -> dict[str, Any]:
    message = raw_json(step.message)
    return _spoken(msgspec.json.decode(message)) if message is not None else {}


def _spoken(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a message says; a field without a value says nothing."""
    return {name: value for name, value in message.items() if value}


def _ids_exact(reply: Served, step: StepCaptured, prompt: Prompt | None) -> bool:
    sampled = reply.response_ids
    if step.status == "cancelled":
        sampled = sampled[: len(step.response_ids)]
    return prompt is not None and list(prompt.ids) == reply.prompt_ids and step.response_ids == sampled


def _aligned(reply: Served, step: StepCaptured) -> bool:
    length = len(step.response_ids)
    return len(step.response_logprobs) == length and step.response_logprobs == reply.logprobs[:length]


def _prompt_exact(reply: Served, prompt: Prompt | None) -> bool:
    if prompt is None:
        return False
    messages = [message.decode() for message in prompt.messages]
    return messages == reply.messages and (prompt.tools or b"null").decode() == reply.tools


def _prefixes(
    turns: Sequence[StepCaptured], prompts: Mapping[str, Prompt]
) -> list[tuple[PrefixClass, float]]:
    """Of each two consecutive turns."""
    found: list[tuple[PrefixClass, float]] = []
    for before, after in pairwise(turns):
        if before.step_id not in prompts or after.step_id not in prompts:
            continue
        prompt = prompts[before.step_id].ids
        leaf = [*prompt, *before.response_ids]
        kept = common_prefix(leaf, list(prompts[after.step_id].ids))
        name: PrefixClass = "broken" if kept < len(prompt) else "rewritten"
        found.append(("exact" if kept == len(leaf) else name, kept / len(leaf)))
    return found
