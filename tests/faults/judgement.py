"""What the clients saw against what the engine noted and what the log holds. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentworld.contract.delta import Prompt, expand
from agentworld.contract.errors import IntegrityError
from agentworld.contract.events import Event, StepCaptured, TrajectoryRegistered
from tests.faults.client import Call
from tests.faults.engine_log import Ended
from tests.faults.plays import ANSWER

_EXAMPLES = 5
"""How many examples of one kind of problem are told."""


@dataclass(slots=True)
class Judgement:
    """One row. Steps belong to a call by the digest of its request's body, which no other call shares."""

    calls: int = 0
    """All that reached the gateway, however they ended."""
    answered: int = 0
    """The client has the complete reply: of a stream its end event, else the whole body with status 200."""
    lost: int = 0
    """Answered, and topic `trajectory-events` holds no step of that call with status `ok` and the step id
    that the client was given."""
    duplicated: int = 0
    """Answered, and two distinct step ids remain once records with equal step ids count as one: two steps
    of that one request, or of that one completion of the engine."""
    inexact: int = 0
    """Answered and captured, but prompt ids, response ids or log-probabilities are not those that the
    engine noted, or the client was shown another text."""
    failed: int = 0
    """The client was told of an error, or left by itself."""
    failed_captured: int = 0
    """Of these: those with a step that says how they ended (`failed`, `timed_out`, …)."""
    left: int = 0
    """Of `failed`: calls whose client left."""
    refused: int = 0
    """The client was told that nothing was recorded and when to try again."""
    refused_captured: int = 0
    """Of these: recorded all the same, by a broker that had seemed to be away. Harmless."""
    broken: int = 0
    """The connection ended before the client had the reply."""
    broken_captured: int = 0
    """Of these: captured all the same. Allowed: what is not answered may be in the log or not."""
    repeated: int = 0
    """Records whose step id an earlier record has: redeliveries, all equal to the first."""
    registered: int = 0
    """Registrations that were answered."""
    registrations_lost: int = 0
    """Of these: those that are not in the log."""
    engine_cancelled: int = 0
    """Calls that the engine saw cancelled."""
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    """By protocol, streamed or not: how many calls ended how."""
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Log:
    """Topic `trajectory-events`, put in order."""

    by_request: dict[str, list[StepCaptured]]
    by_completion: dict[str, list[StepCaptured]]
    prompts: dict[str, Prompt]
    registered: set[str]
    repeated: int
    problems: list[str]


def judge(
    calls: Sequence[Call], registered: Iterable[str], noted: Iterable[Ended], events: Iterable[Event]
) -> Judgement:
    """Compare. `events`: all of the topic, repetitions included, in the order of the log."""
    log = _in_order(events)
    by_id = {entry.id: entry for entry in noted}
    row = Judgement(calls=len(calls), repeated=log.repeated, problems=log.problems)
    wrong: dict[str, list[str]] = defaultdict(list)
    for call in calls:
        _count(row, call, log, by_id, wrong)
    row.kinds = _by_kind(calls)
    answered_registrations = set(registered)
    row.registered = len(answered_registrations)
    missing = answered_registrations - log.registered
    row.registrations_lost = len(missing)
    if missing:
        row.problems.append(f"answered registrations that are not in the log: {sorted(missing)[:_EXAMPLES]}")
    row.engine_cancelled = len({entry.mark for entry in by_id.values() if entry.end == "cancelled"})
    for what, marks in wrong.items():
        examples = ", ".join(marks[:_EXAMPLES])
        row.problems.append(f"{len(marks)} calls: {what} ({examples})")
    return row


def _in_order(events: Iterable[Event]) -> _Log:
    steps: dict[str, StepCaptured] = {}
    registered: set[str] = set()
    problems: list[str] = []
    repeated = 0
    for event in events:
        if isinstance(event, TrajectoryRegistered):
            registered.add(event.trajectory_id)
        elif isinstance(event, StepCaptured):
            repeated += event.step_id in steps
            if steps.setdefault(event.step_id, event) != event:
                problems.append(f"step {event.step_id} stands in the log with two contents")
    log = _Log(defaultdict(list), defaultdict(list), {}, registered, repeated, problems)
    by_trajectory: dict[str, list[StepCaptured]] = defaultdict(list)
    for step in steps.values():
        log.by_request[step.request.fingerprint].append(step)
        by_trajectory[step.trajectory_id].append(step)
        if step.engine.request_id:
            log.by_completion[step.engine.request_id].append(step)
    for trajectory_id, captured in by_trajectory.items():
        try:
            log.prompts |= expand(captured)
        except IntegrityError as exc:
            problems.append(f"prompts of trajectory {trajectory_id} cannot be expanded: {exc}")
    return log


def _count(
    row: Judgement, call: Call, log: _Log, by_id: Mapping[str, Ended], wrong: dict[str, list[str]]
) -> None:
    steps = log.by_request.get(call.fingerprint, [])
    if call.outcome == "answered":
        row.answered += 1
        _count_answered(row, call, steps, log, by_id, wrong)
    elif call.outcome == "refused":
        row.refused += 1
        row.refused_captured += bool(steps)
    elif call.outcome == "broken":
        row.broken += 1
        row.broken_captured += bool(steps)
    else:
        row.failed += 1
        row.left += call.outcome == "left"
        found = [step.status for step in steps]
        row.failed_captured += found == [call.play.ends]
        if found != [call.play.ends] or call.play is ANSWER:
            said = f"{call.http_status} {call.detail}" if call.detail else call.outcome
            wrong[f"{call.kind}, {call.play.name}: {said!r}, captured as {found}"].append(call.mark)


def _count_answered(
    row: Judgement,
    call: Call,
    steps: Sequence[StepCaptured],
    log: _Log,
    by_id: Mapping[str, Ended],
    wrong: dict[str, list[str]],
) -> None:
    step = next((step for step in steps if step.step_id == call.step_id and step.status == "ok"), None)
    if step is None:
        row.lost += 1
        wrong[f"{call.kind}, answered and lost; captured as {[s.status for s in steps]}"].append(call.mark)
    same = {s.step_id for s in [*steps, *(log.by_completion.get(step.engine.request_id, []) if step else [])]}
    if len(same) > 1:
        row.duplicated += 1
        wrong[f"{call.kind}, answered and captured twice"].append(call.mark)
    if step is not None and not _exact(call, step, log.prompts, by_id):
        row.inexact += 1
        wrong[f"{call.kind}, captured otherwise than sampled or shown"].append(call.mark)


def _exact(call: Call, step: StepCaptured, prompts: Mapping[str, Prompt], by_id: Mapping[str, Ended]) -> bool:
    noted, prompt = by_id.get(step.engine.request_id), prompts.get(step.step_id)
    return (
        noted is not None
        and prompt is not None
        and noted.mark == call.mark
        and noted.text == call.text
        and noted.response_ids == step.response_ids
        and noted.logprobs == step.response_logprobs
        and noted.prompt_ids == list(prompt.ids)
    )


def _by_kind(calls: Iterable[Call]) -> dict[str, dict[str, int]]:
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for call in calls:
        kinds[str(call.kind)][call.outcome] += 1
    return {kind: dict(sorted(counts.items())) for kind, counts in sorted(kinds.items())}
