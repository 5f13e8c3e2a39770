"""What can be checked about a trajectory's steps, and how each relates to its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentworld.contract.events import IntegrityReport, StepCaptured, raw_json
from agentworld.contract.events.trajectories import StepRelation


def report(steps: Sequence[StepCaptured]) -> IntegrityReport:
    """Count what is wrong. `duplicate_events` stays 0: redelivery must not change what is sealed."""
    known = {step.step_id for step in steps}
    missing = {step.prompt.base_step_id for step in steps if step.prompt.base_step_id not in known | {None}}
    return IntegrityReport(
        missing_bases=sorted(base for base in missing if base is not None),
        steps_not_ok=sum(step.status != "ok" for step in steps),
        steps_without_ids=sum(step.status == "ok" and not _has_ids(step) for step in steps),
        steps_misaligned=sum(len(step.response_ids) != len(step.response_logprobs) for step in steps),
    )


def relation(step: StepCaptured, steps: Mapping[str, StepCaptured]) -> StepRelation:
    """How the step's prompt relates to its base, by token prefix (by messages where no ids are).

    A base that is missing cannot be shown to be extended: `rewritten`.
    """
    delta = step.prompt
    if delta.base_step_id is None:
        return "root"
    base = steps.get(delta.base_step_id)
    if base is None:
        return "rewritten"
    if base.prompt.prompt_tokens:
        whole = delta.keep_tokens == base.prompt.prompt_tokens + len(base.response_ids)
    else:
        whole = delta.keep_messages == _leaf_messages(base)
    return "extends" if whole else "rewritten"


def _leaf_messages(step: StepCaptured) -> int:
    return step.prompt.keep_messages + len(step.prompt.append_messages) + (raw_json(step.message) is not None)


def _has_ids(step: StepCaptured) -> bool:
    return bool(step.response_ids) and step.token_source in {"engine", "retokenized"}
