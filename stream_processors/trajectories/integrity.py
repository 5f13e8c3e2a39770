"""What can be checked about a trajectory's steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agentworld.contract.events import IntegrityReport, StepCaptured

_CUT_AT_A_LIMIT = "length"
"""The engines' finish reason where a limit of tokens ended the response."""


def report(steps: Sequence[StepCaptured]) -> IntegrityReport:
    """Count what is wrong. `duplicate_events` stays 0: redelivery must not change what is sealed."""
    known = {step.step_id for step in steps}
    missing = {step.prompt.base_step_id for step in steps if step.prompt.base_step_id not in known | {None}}
    return IntegrityReport(
        missing_bases=sorted(base for base in missing if base is not None),
        steps_not_ok=sum(step.status != "ok" for step in steps),
        steps_without_ids=sum(step.status == "ok" and not _has_ids(step) for step in steps),
        steps_misaligned=sum(len(step.response_ids) != len(step.response_logprobs) for step in steps),
        gaps=_gaps(steps, missing),
    )


def _gaps(steps: Sequence[StepCaptured], missing: set[str | None]) -> dict[str, int]:
    """Steps by what is missing of them; a step may count under several kinds."""
    gaps: Counter[str] = Counter(step.status for step in steps if step.status != "ok")
    gaps["missing_base"] = sum(step.prompt.base_step_id in missing for step in steps)
    gaps["truncated"] = sum(step.finish_reason == _CUT_AT_A_LIMIT for step in steps)
    return {kind: count for kind, count in sorted(gaps.items()) if count}


def _has_ids(step: StepCaptured) -> bool:
    return bool(step.response_ids) and step.token_source in {"engine", "retokenized"}
