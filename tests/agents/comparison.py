"""What the engine served against what the log holds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from agentworld.contract.delta import Prompt, common_prefix, expand
from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import StepCaptured
from tests.agents.engine_log import Served

PrefixClass = Literal["exact", "rewritten", "broken"]
"""How a prompt goes on from the turn before it.

`exact`: it begins with that turn's prompt and the ids sampled then. `rewritten`: with the prompt, but the
sampled turn came back changed. `broken`: something before the sampled turn changed.
"""
_WORST: tuple[PrefixClass, ...] = ("exact", "rewritten", "broken")
ABORTED = "abort"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One trajectory."""

    calls: int
    """Replies the engine gave."""
    captured: int
    """Those that stand in the log."""
    ids_exact: bool
    """Prompt and response ids are the engine's, in every step."""
    logprobs_aligned: bool
    """One log-probability per sampled token, the engine's, in every step."""
    prefix_class: PrefixClass | None
    """The worst among consecutive turns of the main conversation; None with fewer than two."""
    problems: Sequence[str] = field(default_factory=list)


def compare(served: Sequence[Served], steps: Sequence[StepCaptured]) -> Comparison:
    """Match replies and steps by the engine's id of the completion."""
    problems = []
    by_reply = {step.engine.request_id: step for step in steps}
    missing = [reply.id for reply in served if reply.id not in by_reply]
    if missing:
        problems.append(f"{len(missing)} of {len(served)} calls are not in the log")
    if twice := [name for name, count in Counter(s.engine.request_id for s in steps).items() if count > 1]:
        problems.append(
            f"captured more than once: {', '.join(name or 'a call without an id' for name in twice)}"
        )
    for step in steps:
        if step.engine.request_id not in {reply.id for reply in served}:
            reason = step.error.message if step.error else "the engine knows nothing of it"
            problems.append(f"a step is {step.status}: {reason}")
    try:
        prompts = expand(steps)
    except IntegrityError as exc:
        prompts = {}
        problems.append(f"prompts cannot be expanded: {exc}")
    matched = [(reply, by_reply[reply.id]) for reply in served if reply.id in by_reply]
    for reply, step in matched:
        problems += _problems(reply, step)
    return Comparison(
        calls=len(served),
        captured=len(matched),
        ids_exact=bool(matched) and all(_ids_exact(r, s, prompts.get(s.step_id)) for r, s in matched),
        logprobs_aligned=bool(matched) and all(_aligned(reply, step) for reply, step in matched),
        prefix_class=_prefix_class([s for r, s in matched if r.kind == "turn"], prompts),
        problems=problems,
    )


def _problems(reply: Served, step: StepCaptured) -> list[str]:
    wanted = "cancelled" if reply.finish_reason == ABORTED else "ok"
    found = []
    if step.status != wanted:
        reason = f": {step.error.message}" if step.error else ""
        found.append(f"a step is {step.status}, not {wanted}{reason}")
    if step.integrity and wanted == "ok":
        found.append(f"a step failed the checks {', '.join(step.integrity)}")
    if step.request.stream != reply.stream:
        found.append("streaming was asked of the engine otherwise than by the client")
    return found


def _ids_exact(reply: Served, step: StepCaptured, prompt: Prompt | None) -> bool:
    sampled = reply.response_ids
    if reply.finish_reason == ABORTED:
        sampled = sampled[: len(step.response_ids)]
    return prompt is not None and list(prompt.ids) == reply.prompt_ids and step.response_ids == sampled


def _aligned(reply: Served, step: StepCaptured) -> bool:
    length = len(step.response_ids)
    return len(step.response_logprobs) == length and step.response_logprobs == reply.logprobs[:length]


def _prefix_class(turns: Sequence[StepCaptured], prompts: Mapping[str, Prompt]) -> PrefixClass | None:
    found: list[PrefixClass] = []
    for before, after in pairwise(turns):
        if before.step_id not in prompts or after.step_id not in prompts:
            continue
        prompt = prompts[before.step_id].ids
        leaf = [*prompt, *before.response_ids]
        kept = common_prefix(leaf, list(prompts[after.step_id].ids))
        found.append("exact" if kept == len(leaf) else "rewritten" if kept >= len(prompt) else "broken")
    return max(found, key=_WORST.index, default=None)
