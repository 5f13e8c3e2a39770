"""Whatever the order and the duplicates: the same members, rewards and decision of a group."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.contract.events import Event, GroupDecision, GroupRevised, TrajectorySealed, VerdictGiven
from agentworld.contract.ids import derived_id
from agentworld.contract.topics import GROUPS, TRAJECTORIES
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from stream_processors.groups.processor import GroupProcessor
from stream_processors.rules import Rules
from tests.support.rules import rules as limits
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import T0_MS, read

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def seals(n: int = 3) -> list[TrajectorySealed]:
    """Sealed trajectories of one group; the last one failed."""
    bench = Bench()
    for index in range(n):
        one = rollout("p", index, n=n)
        outcome = "failed" if index == n - 1 else "succeeded"
        bench.feed(*one.whole(1, reward=index / n)[:-1], one.completed(outcome))
        bench.wait(1_000)
    events = read(TRAJECTORIES, bench.log.records(TRAJECTORIES.name))
    return [event for event in events if isinstance(event, TrajectorySealed)]


def verdict(number: int, decision: str, **changes: Any) -> VerdictGiven:
    event = VerdictGiven(
        event_id=derived_id("verdict", number),
        event_time_ms=T0_MS + number,
        source="test",
        prompt_id="p",
        group_id=rollout("p", 0).group_id,
        decision="hold",
        given_by="ada",
    )
    return msgspec.structs.replace(event, decision=decision, **changes)


SEALS = seals()
VERDICTS = [
    verdict(1, "reject"),
    verdict(2, "hold", given_by="bob"),
    verdict(3, "reject", given_by_kind="evaluator", given_by="judge"),
    verdict(4, "reject", trajectory_id="p-1"),
    verdict(5, "accept", given_by_kind="evaluator", given_by="judge"),
    verdict(6, "accept", given_by="carol"),
]
CURATED = limits(
    curation=[{"rule": "outcome", "outcomes": ["failed"], "on": "trajectory"}, {"rule": "zero_variance"}]
)


def final(events: list[Event], rules: Rules) -> tuple[str, str, list[tuple[str, float | None]], int]:
    """The last decision on the group, who is in it, and how many decisions say the same version."""
    log, out = InMemoryLog(partitions=1), InMemoryLog(partitions=1)
    for event in events:
        log.append(OutRecord.of(TRAJECTORIES, event))
    processor = GroupProcessor(0, rules)
    for record in log.records(TRAJECTORIES.name):
        for output in processor.process(record).outputs:
            out.append(output)
    decided = [e for e in read(GROUPS, out.records(GROUPS.name)) if isinstance(e, GroupDecision)]
    versions = [e.version for e in decided]
    assert versions == list(range(1, len(versions) + 1)), "one decision per version, in order"
    first = [e for e in decided if not isinstance(e, GroupRevised)][-1]
    newest = decided[-1]
    members = [(member.trajectory_id, member.reward) for member in newest.members]
    return type(first).__name__, newest.decided_by, members, len(decided)


@relaxed
@given(st.data())
def test_any_order_of_seals_and_verdicts_with_duplicates_ends_in_the_same_decision(
    data: st.DataObject,
) -> None:
    said = data.draw(st.lists(st.sampled_from(VERDICTS), unique_by=lambda v: v.event_id), label="verdicts")
    rules = data.draw(st.sampled_from([limits(), CURATED]), label="rules")
    events: list[Event] = [*SEALS, *said]
    again = data.draw(st.lists(st.sampled_from(events), max_size=5), label="again")
    order = data.draw(st.permutations([*events, *again]), label="order")
    assert final(order, rules)[:3] == final([*said, *SEALS], rules)[:3]


@relaxed
@given(st.permutations([*SEALS, *SEALS]))
def test_a_group_without_verdicts_is_decided_once(order: list[Event]) -> None:
    kind, decided_by, members, decisions = final(order, limits())
    assert (kind, decided_by, decisions) == ("GroupReady", "wait", 1)
    assert members == [("p-0", 0.0), ("p-1", 1 / 3), ("p-2", 2 / 3)]
