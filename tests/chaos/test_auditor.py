"""The auditor finds each kind of violation in a log that was tampered with, and none in one that was not."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
import pytest

from agentworld.contract.events import BatchReady, GroupDecision, TrajectorySealed
from agentworld.contract.topics import TRAJECTORIES
from tests.chaos.__main__ import problems_of
from tests.chaos.arrived import Arrived, StepRow
from tests.chaos.auditor import VIOLATIONS, audit
from tests.chaos.expected import Expected, Rollout
from tests.unit.stream_processors.bench import Bench, rollout
from tests.unit.stream_processors.rollouts import read

replace = msgspec.structs.replace


def collected() -> tuple[Expected, Arrived]:
    """Two groups of two rollouts of three steps, as they went through the processors."""
    bench, expected = Bench(batch_groups=1), Expected("run")
    for prompt in "ab":
        for index in range(2):
            one = rollout(prompt, index)
            steps = one.steps(3)
            bench.feed(one.registered(), *steps, one.completed())
            bench.wait(1_000)
            known = Rollout(
                one.trajectory_id, prompt, "run", one.group_id, 2, registered=True, completed=True
            )
            known.answered = [step.step_id for step in steps]
            expected.rollouts.append(known)
    seals = read(TRAJECTORIES, bench.log.records(TRAJECTORIES.name))
    arrived = Arrived(
        seals=[event for event in seals if isinstance(event, TrajectorySealed)],
        decisions=bench.decisions(),
        batches=bench.batches(),
        group_rows=[(event.group_id, "run") for event in bench.decisions()],
    )
    arrived.rows = [
        StepRow(placed.step.step_id, seal.trajectory_id, seal.group_id, placed.step_index)
        for seal in arrived.seals
        for placed in seal.steps
    ]
    arrived.trajectory_rows = [(seal.trajectory_id, seal.group_id) for seal in arrived.seals]
    arrived.batch_rows = {batch.batch_id for batch in arrived.batches}
    return expected, arrived


def lose_a_step(arrived: Arrived) -> None:
    seal = arrived.seals[0]
    arrived.seals[0] = replace(seal, steps=seal.steps[:2])
    arrived.rows = [row for row in arrived.rows if row.step_id != seal.steps[2].step.step_id]


def lose_a_seal(arrived: Arrived) -> None:
    gone = arrived.seals.pop()
    arrived.rows = [row for row in arrived.rows if row.trajectory_id != gone.trajectory_id]


def lose_a_row(arrived: Arrived) -> None:
    arrived.rows.pop()


def lose_a_decision(arrived: Arrived) -> None:
    gone = arrived.decisions.pop()
    arrived.group_rows = [row for row in arrived.group_rows if row[0] != gone.group_id]


def lose_a_group_row(arrived: Arrived) -> None:
    arrived.group_rows.pop()


def decide_without_a_rollout(arrived: Arrived) -> None:
    first = arrived.decisions[0]
    arrived.decisions[0] = replace(first, members=first.members[:1])


def lose_a_batch(arrived: Arrived) -> None:
    arrived.batches.pop()


def lose_the_row_of_a_trajectory(arrived: Arrived) -> None:
    arrived.trajectory_rows.pop()


def lose_the_row_of_a_batch(arrived: Arrived) -> None:
    arrived.batch_rows.pop()


def store_a_trajectory_twice(arrived: Arrived) -> None:
    arrived.trajectory_rows.append(arrived.trajectory_rows[0])


def store_a_trajectory_in_another_group(arrived: Arrived) -> None:
    arrived.trajectory_rows[0] = (arrived.trajectory_rows[0][0], "another")


def batch_a_member_of_another_group(arrived: Arrived) -> None:
    first, last = arrived.batches[0].groups[0], arrived.batches[-1].groups[0]
    strange = replace(last, members=[*last.members, first.members[0]])
    arrived.batches[-1] = replace(arrived.batches[-1], groups=[strange])


def batch_a_group_twice_at_once(arrived: Arrived) -> None:
    batch = arrived.batches[0]
    arrived.batches[0] = replace(batch, groups=[*batch.groups, batch.groups[0]])


def seal_twice_differently(arrived: Arrived) -> None:
    arrived.seals.append(replace(arrived.seals[0], event_time_ms=1))


def put_a_step_into_two_places(arrived: Arrived) -> None:
    seal = arrived.seals[0]
    arrived.seals[0] = replace(seal, steps=[*seal.steps, replace(seal.steps[2], step_index=3)])


def store_a_row_twice(arrived: Arrived) -> None:
    arrived.rows.append(arrived.rows[0])


def store_a_row_of_no_step(arrived: Arrived) -> None:
    row = arrived.rows[0]
    arrived.rows.append(StepRow("unheard-of", row.trajectory_id, row.group_id, 3))


def swap_steps(arrived: Arrived) -> None:
    seal = arrived.seals[0]
    first, second, third = seal.steps
    arrived.seals[0] = replace(seal, steps=[second, first, third])


def store_a_row_at_another_place(arrived: Arrived) -> None:
    row = arrived.rows[0]
    arrived.rows[0] = StepRow(row.step_id, row.trajectory_id, row.group_id, 7)


def seal_in_another_group(arrived: Arrived) -> None:
    arrived.seals[0] = replace(arrived.seals[0], group_id=arrived.seals[-1].group_id)
    arrived.trajectory_rows[0] = (arrived.seals[0].trajectory_id, arrived.seals[0].group_id)
    arrived.rows = [
        StepRow(row.step_id, row.trajectory_id, arrived.seals[-1].group_id, row.step_index)
        if row.trajectory_id == arrived.seals[0].trajectory_id
        else row
        for row in arrived.rows
    ]


def count_a_member_elsewhere(arrived: Arrived) -> None:
    first, last = arrived.decisions[0], arrived.decisions[-1]
    arrived.decisions[-1] = replace(last, members=[*last.members, first.members[0]])


def seal_what_nobody_sent(arrived: Arrived) -> None:
    arrived.seals.append(replace(arrived.seals[0], trajectory_id="nobody", steps=[]))
    arrived.trajectory_rows.append(("nobody", arrived.seals[0].group_id))


def store_a_row_of_another_group(arrived: Arrived) -> None:
    row = arrived.rows[0]
    arrived.rows[0] = StepRow(row.step_id, row.trajectory_id, "another", row.step_index)


def decide_twice(arrived: Arrived) -> None:
    decision: GroupDecision = arrived.decisions[0]
    arrived.decisions.append(replace(decision, reason="another"))


def batch_a_group_twice(arrived: Arrived) -> None:
    batch: BatchReady = arrived.batches[0]
    arrived.batches.append(replace(batch, batch_id="another", event_id="another"))
    arrived.batch_rows.add("another")


def release_a_batch_in_two_ways(arrived: Arrived) -> None:
    arrived.batches.append(replace(arrived.batches[0], steps=0))


TAMPERED: list[tuple[Callable[[Arrived], None], str]] = [
    (lose_a_step, "lost"),
    (lose_a_seal, "lost"),
    (lose_a_row, "lost"),
    (lose_a_decision, "lost"),
    (lose_a_group_row, "lost"),
    (decide_without_a_rollout, "lost"),
    (lose_a_batch, "lost"),
    (lose_the_row_of_a_trajectory, "lost"),
    (lose_the_row_of_a_batch, "lost"),
    (seal_twice_differently, "duplicated"),
    (put_a_step_into_two_places, "duplicated"),
    (store_a_row_twice, "duplicated"),
    (store_a_row_of_no_step, "duplicated"),
    (store_a_trajectory_twice, "duplicated"),
    (swap_steps, "misordered"),
    (store_a_row_at_another_place, "misordered"),
    (seal_in_another_group, "wrong_group"),
    (count_a_member_elsewhere, "wrong_group"),
    (seal_what_nobody_sent, "wrong_group"),
    (store_a_row_of_another_group, "wrong_group"),
    (store_a_trajectory_in_another_group, "wrong_group"),
    (batch_a_member_of_another_group, "wrong_group"),
    (decide_twice, "ready_twice"),
    (batch_a_group_twice, "ready_twice"),
    (batch_a_group_twice_at_once, "ready_twice"),
    (release_a_batch_in_two_ways, "ready_twice"),
]


def test_a_log_as_it_should_be_has_no_violation_also_with_redeliveries() -> None:
    expected, arrived = collected()
    assert audit(expected, arrived, batch_groups=1).violations == 0
    arrived.seals += copy.deepcopy(arrived.seals)
    arrived.decisions += arrived.decisions[:1]
    arrived.batches += arrived.batches[:1]
    found = audit(expected, arrived, batch_groups=1)
    assert (found.violations, found.groups, found.answered) == (0, 2, 12)


@pytest.mark.parametrize(
    ("tamper", "violation"), TAMPERED, ids=lambda value: getattr(value, "__name__", value)
)
def test_each_violation_is_found_as_what_it_is(tamper: Callable[[Arrived], None], violation: str) -> None:
    expected, arrived = collected()
    tamper(arrived)
    found = audit(expected, arrived, batch_groups=1)
    assert getattr(found, violation) > 0, found.notes
    others = {name for name in VIOLATIONS if name != violation and getattr(found, name)}
    assert others <= {"misordered"} if violation == "duplicated" else not others, found.notes


def test_what_other_runs_did_is_not_judged() -> None:
    expected, arrived = collected()
    other = Expected("another")
    assert audit(other, arrived, batch_groups=1).violations == 0
    assert audit(expected, Arrived(), batch_groups=1).lost == 4 + 12 + 2


def test_a_run_passes_only_without_violations_and_with_enough_groups_and_kills() -> None:
    good = dict.fromkeys(VIOLATIONS, 0) | {"poison_astray": 0, "groups": 200, "kills": 50}
    assert problems_of(good) == []
    assert problems_of(good | {"lost": 1}) == ["1 lost"]
    assert problems_of(good | {"poison_astray": 2}) == ["2 poison_astray"]
    assert len(problems_of(good | {"groups": 199, "kills": 49})) == 2


def test_fewer_ready_groups_than_a_batch_takes_may_wait_at_the_end() -> None:
    expected, arrived = collected()
    arrived.batches.clear()
    assert audit(expected, arrived, batch_groups=3).violations == 0
    assert audit(expected, arrived, batch_groups=2).lost == 2
