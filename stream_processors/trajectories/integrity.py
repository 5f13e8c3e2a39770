"""What can be checked about a trajectory's steps."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.contract.events import IntegrityReport, StepCaptured


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


def _has_ids(step: StepCaptured) -> bool:
    return bool(step.response_ids) and step.token_source in {"engine", "retokenized"}
