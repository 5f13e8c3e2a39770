"""Do the numbers add up? What agents saw, what the log holds, what ClickHouse stores, what was sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recipes.quickstart.engine.journal import Entry

SampleKey = tuple[str, int]
"""Completion id and choice index."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens of one step, as some part of the system holds them."""

    step_id: str
    request_id: str
    """The completion's id."""
    choice: int
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float]


@dataclass(slots=True)
class Agreement:
    """How steps compare with the engine's own journal."""

    compared: int = 0
    unknown: list[str] = field(default_factory=list)
    """Step ids that the engine has no line for."""
    ids_differ: list[str] = field(default_factory=list)
    logprobs_differ: list[str] = field(default_factory=list)

    @property
    def ids_exact(self) -> bool:
        """Every prompt and response id is the engine's; there was something to compare."""
        return self.compared > 0 and not self.unknown and not self.ids_differ

    @property
    def logprobs_aligned(self) -> bool:
        """Every response id has the log-probability it was sampled with."""
        return self.compared > 0 and not self.unknown and not self.logprobs_differ


def compare(steps: Iterable[StepTokens], journal: Mapping[SampleKey, Entry]) -> Agreement:
    """Compare token for token; nothing is rounded."""
    agreement = Agreement()
    for step in steps:
        agreement.compared += 1
        entry = journal.get((step.request_id, step.choice))
        if entry is None:
            agreement.unknown.append(step.step_id)
            continue
        if list(step.prompt_ids) != entry.prompt_ids or list(step.response_ids) != entry.response_ids:
            agreement.ids_differ.append(step.step_id)
        if list(step.logprobs) != entry.logprobs:
            agreement.logprobs_differ.append(step.step_id)
    return agreement


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run, from every side."""

    answered_ids: Sequence[str]
    """Completion ids that agents had whole answers to."""
    captured: Sequence[StepTokens]
    """Steps of status `ok` in `trajectory-events`, each step id once."""
    stored: Sequence[StepTokens]
    """Rows of status `ok` in ClickHouse, FINAL."""
    decisions: Mapping[str, tuple[str, str]]
    """Newest decision and its reason, by group id."""
    groups_total: int
    journal: Mapping[SampleKey, Entry]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures, and what does not add up in words; nothing there means that all is well."""

    figures: dict[str, Any]
    problems: list[str]


RESOLVED = ("group_ready", "group_partial", "group_rejected", "group_expired")


def verify(evidence: Evidence, *, clients_lost_answers: bool = False) -> Verdict:
    """Check the promises on one run.

    With `clients_lost_answers` (processes were killed) a step may be captured whose client saw a
    failed call; never the other way round.
    """
    in_log, in_store = (
        compare(evidence.captured, evidence.journal),
        compare(evidence.stored, evidence.journal),
    )
    ready = sum(decision == "group_ready" for decision, _ in evidence.decisions.values())
    resolved = sum(decision in RESOLVED and bool(why) for decision, why in evidence.decisions.values())
    captured_ids = Counter(step.request_id for step in evidence.captured)
    stored_ids = {step.step_id for step in evidence.stored}
    lost = [i for i in evidence.answered_ids if i not in captured_ids]
    problems = []
    if lost:
        problems.append(f"{len(lost)} answered calls are not in the log, such as {lost[0]}")
    unseen = len(evidence.captured) - len(evidence.answered_ids)
    if not clients_lost_answers and unseen != 0 and not lost:
        problems.append(f"the log holds {unseen} ok steps more than agents had answers")
    if len(stored_ids) != len(evidence.stored):
        problems.append(f"{len(evidence.stored) - len(stored_ids)} steps are doubled in ClickHouse")
    if stored_ids != {step.step_id for step in evidence.captured}:
        problems.append(f"the log holds {len(evidence.captured)} ok steps, ClickHouse {len(evidence.stored)}")
    if resolved != evidence.groups_total:
        problems.append(
            f"{evidence.groups_total - resolved} of {evidence.groups_total} groups are unresolved"
        )
    for where, agreement in (("the log", in_log), ("ClickHouse", in_store)):
        problems += _disagreements(where, agreement)
    return Verdict(
        figures={
            "answered_calls": len(evidence.answered_ids),
            "captured_steps": len(evidence.captured),
            "stored_steps": len(evidence.stored),
            "groups_total": evidence.groups_total,
            "groups_ready": ready,
            "groups_resolved": resolved,
            "ids_exact": in_log.ids_exact and in_store.ids_exact,
            "logprobs_aligned": in_log.logprobs_aligned and in_store.logprobs_aligned,
            "steps_compared_log": in_log.compared,
            "steps_compared_clickhouse": in_store.compared,
            "tokens_compared": sum(len(s.response_ids) for s in (*evidence.captured, *evidence.stored)),
            "lost_calls": len(lost),
        },
        problems=problems,
    )


def _disagreements(where: str, agreement: Agreement) -> list[str]:
    found = (
        ("that the engine did not sample", agreement.unknown),
        ("with other ids than the engine sampled", agreement.ids_differ),
        ("with other log-probabilities than the engine's", agreement.logprobs_differ),
    )
    problems = [f"{where} holds {len(ids)} steps {what}, such as {ids[0]}" for what, ids in found if ids]
    return problems if agreement.compared else [f"{where} holds no step of this run"]
