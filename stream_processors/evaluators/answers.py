"""An evaluation as events, and a failed one as a dead letter. Pure.

Ids are derived from the evaluator's name, its config digest and the trajectory, and the time is the seal's:
a redelivery repeats the same events.
"""

from __future__ import annotations

from agentworld.contract.events import Event, RewardAssigned, TrajectorySealed, VerdictGiven
from agentworld.contract.ids import derived_id
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import OutRecord, Record
from stream_processors.evaluators.evaluation import Evaluation, EvaluationFailed
from stream_processors.evaluators.kinds import (
    Evaluator,
    config_digest,
    decision_of,
    evaluator_name,
    reward_name,
)

SOURCE = "stream-processors.evaluators"
"""Consumer group (behind the prefix), and the name under which it writes."""
FAILED = "evaluation-failed"
"""Header of a dead letter, and so of its replay: the evaluator that is to be asked again, alone."""


def events_of(evaluator: Evaluator, sealed: TrajectorySealed, evaluation: Evaluation) -> list[Event]:
    """The verdict, where there is one, then the rewards: where a reward stands, its verdict does."""
    name, digest = evaluator_name(evaluator), config_digest(evaluator)
    identity = (name, digest, sealed.trajectory_id)
    events: list[Event] = []
    deciding = evaluation.rewards.get(reward_name(evaluator))
    decision = evaluation.decision
    if decision is None and deciding is not None:
        decision = decision_of(evaluator, deciding)
    if decision is not None:
        on_trajectory = evaluator.verdict_on == "trajectory"
        events.append(
            VerdictGiven(
                event_id=derived_id("evaluation_verdict", *identity),
                event_time_ms=sealed.event_time_ms,
                source=SOURCE,
                prompt_id=sealed.prompt_id,
                group_id=sealed.group_id,
                decision=decision,
                trajectory_id=sealed.trajectory_id if on_trajectory else None,
                given_by_kind="evaluator",
                # Of one giver's verdicts on a group the newest counts, so each trajectory has its own giver.
                given_by=name if on_trajectory else f"{name}:{sealed.trajectory_id}",
                reason=evaluation.reason,
                value=_thresholds(evaluator) | {"trajectory_id": sealed.trajectory_id, "reward": deciding},
            )
        )
    for reward, value in sorted(evaluation.rewards.items()):
        events.append(
            RewardAssigned(
                event_id=derived_id("evaluation", *identity, reward),
                event_time_ms=sealed.event_time_ms,
                source=SOURCE,
                trajectory_id=sealed.trajectory_id,
                prompt_id=sealed.prompt_id,
                value=value,
                name=reward,
                given_by=name,
                extra=evaluation.extra | {"reason": evaluation.reason, "config_digest": digest},
            )
        )
    return events


def letter_of(record: Record, evaluator: Evaluator, failure: EvaluationFailed) -> OutRecord:
    """The sealed trajectory for the dead-letter topic, with the evaluator that failed on it."""
    name = evaluator_name(evaluator)
    kept = tuple((header, value) for header, value in record.headers if header != FAILED)
    marked = Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=(*kept, (FAILED, name.encode())),
        timestamp_ms=record.timestamp_ms,
    )
    detail = f"{name}: {failure}"
    return dead_letter(marked, reason=failure.reason, detail=detail, consumer=SOURCE)


def _thresholds(evaluator: Evaluator) -> dict[str, float]:
    named = ("reject_below", "hold_below", "accept_from")
    return {name: limit for name in named if (limit := getattr(evaluator, name)) is not None}
