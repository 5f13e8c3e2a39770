"""Verdicts that people, evaluators and other services gave, and which of them counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from agentworld.contract.events import VerdictGiven
from stream_processors.curation.rule import STRICTNESS


def with_verdict(verdicts: tuple[VerdictGiven, ...], event: VerdictGiven) -> tuple[VerdictGiven, ...]:
    """`verdicts` with `event` in it; the same object where its giver has said something newer.

    All people are one giver: the last word of any of them counts.
    """
    for index, known in enumerate(verdicts):
        if _subject(known) == _subject(event):
            if _when(event) <= _when(known):
                return verdicts
            return (*verdicts[:index], event, *verdicts[index + 1 :])
    return tuple(sorted((*verdicts, event), key=lambda verdict: (_when(verdict), verdict.given_by)))


def counting(verdicts: Iterable[VerdictGiven], trajectory_id: str | None = None) -> VerdictGiven | None:
    """The one that counts for the group, or for one of its trajectories: a person's, else the strictest.

    Of equally strict ones the earliest. None where nobody said anything.
    """
    on_it = [verdict for verdict in verdicts if verdict.trajectory_id == trajectory_id]
    people = [verdict for verdict in on_it if verdict.given_by_kind == "person"]
    if people:
        return people[-1]
    return min(on_it, key=lambda verdict: -STRICTNESS[verdict.decision], default=None)


def _subject(verdict: VerdictGiven) -> tuple[str, str, str | None]:
    giver = "" if verdict.given_by_kind == "person" else verdict.given_by
    return verdict.given_by_kind, giver, verdict.trajectory_id


def _when(verdict: VerdictGiven) -> tuple[int, str]:
    return verdict.event_time_ms, verdict.event_id
