"""Compares what clients were answered with what arrived. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentworld.contract.codec import encode
from agentworld.contract.events import BatchReady, GroupReady, TrajectorySealed
from tests.chaos.arrived import Arrived
from tests.chaos.expected import Expected, Rollout

VIOLATIONS = ("lost", "duplicated", "misordered", "wrong_group", "ready_twice")


@dataclass
class Audit:
    """Violations of one phase; `notes` names each of them."""

    groups: int = 0
    answered: int = 0
    lost: int = 0
    """Answered steps, rollouts and whole groups that did not arrive, in the log, in a batch or as rows."""
    duplicated: int = 0
    """Steps in two places, trajectories sealed in two ways, rows that stand twice."""
    misordered: int = 0
    """Trajectories whose steps stand in another order than they were answered in."""
    wrong_group: int = 0
    """Trajectories, steps or members under a group they do not belong to."""
    ready_twice: int = 0
    """Groups that were released in two ways, or stand in two batches."""
    notes: list[str] = field(default_factory=list)

    @property
    def violations(self) -> int:
        """All of them."""
        return sum(getattr(self, name) for name in VIOLATIONS)

    def found(self, violation: str, note: str) -> None:
        """Count one."""
        setattr(self, violation, getattr(self, violation) + 1)
        self.notes.append(f"{violation}: {note}")


def audit(expected: Expected, arrived: Arrived, *, batch_groups: int) -> Audit:
    """Judge one phase. An event that stands twice with equal bytes is a redelivery, and none.

    `batch_groups`: groups in a full batch; fewer may wait for others when the run ends.
    """
    result = Audit(groups=len(expected.groups), answered=expected.answers)
    seals = _once(expected.run_id, arrived.seals, result)
    rollouts = {rollout.trajectory_id: rollout for rollout in expected.rollouts}
    for rollout in expected.rollouts:
        _audit_rollout(rollout, seals.get(rollout.trajectory_id), result)
    for seal in seals.values():
        rollout_of = rollouts.get(seal.trajectory_id)
        if rollout_of is None:
            result.found("wrong_group", f"{seal.trajectory_id} is nobody's, and sealed in {expected.run_id}")
        elif seal.group_id != rollout_of.group_id:
            result.found("wrong_group", f"{seal.trajectory_id} was sealed in {seal.group_id}")
    _audit_rows(seals, arrived, result)
    _audit_trajectory_rows(seals, arrived, result)
    _audit_groups(expected, rollouts, arrived, result)
    _audit_batches(expected, rollouts, arrived, batch_groups, result)
    return result


def _once(run_id: str, seals: Iterable[TrajectorySealed], result: Audit) -> dict[str, TrajectorySealed]:
    found: dict[str, TrajectorySealed] = {}
    for seal in seals:
        if seal.run_id != run_id:
            continue
        known = found.setdefault(seal.trajectory_id, seal)
        if known is not seal and encode(known) != encode(seal):
            result.found("duplicated", f"{seal.trajectory_id} was sealed in two ways")
    places = Counter(placed.step.step_id for seal in found.values() for placed in seal.steps)
    for step_id, count in places.items():
        if count > 1:
            result.found("duplicated", f"step {step_id} stands in {count} places")
    return found


def _audit_rollout(rollout: Rollout, seal: TrajectorySealed | None, result: Audit) -> None:
    if seal is None:
        if rollout.registered:
            result.found("lost", f"{rollout.trajectory_id} was registered and never sealed")
        for step_id in rollout.answered:
            result.found("lost", f"step {step_id} of {rollout.trajectory_id}")
        return
    order = [placed.step.step_id for placed in seal.steps]
    there = set(order)
    for step_id in rollout.answered:
        if step_id not in there:
            result.found("lost", f"step {step_id} of {rollout.trajectory_id}")
    answered = [step_id for step_id in rollout.answered if step_id in there]
    if [step_id for step_id in order if step_id in set(answered)] != answered:
        result.found("misordered", rollout.trajectory_id)


def _audit_rows(seals: dict[str, TrajectorySealed], arrived: Arrived, result: Audit) -> None:
    sealed = {
        placed.step.step_id: (seal, placed.step_index) for seal in seals.values() for placed in seal.steps
    }
    rows: dict[str, int] = Counter(row.step_id for row in arrived.rows if row.step_id in sealed)
    for step_id, (seal, _) in sealed.items():
        if not rows.get(step_id):
            result.found("lost", f"step {step_id} of {seal.trajectory_id} has no row")
        elif rows[step_id] > 1:
            result.found("duplicated", f"step {step_id} has {rows[step_id]} rows")
    for row in arrived.rows:
        if row.step_id not in sealed:
            if row.trajectory_id in seals:
                result.found("duplicated", f"the row of step {row.step_id} is of no sealed step")
            continue
        seal, index = sealed[row.step_id]
        if (row.trajectory_id, row.group_id) != (seal.trajectory_id, seal.group_id):
            result.found("wrong_group", f"the row of step {row.step_id} says {row.group_id}")
        if row.step_index != index:
            result.found("misordered", f"the row of step {row.step_id} says place {row.step_index}")


def _audit_trajectory_rows(seals: dict[str, TrajectorySealed], arrived: Arrived, result: Audit) -> None:
    """The only rows that a rollout without steps has."""
    groups_of: dict[str, list[str]] = defaultdict(list)
    for trajectory_id, group_id in arrived.trajectory_rows:
        groups_of[trajectory_id].append(group_id)
    for seal in seals.values():
        groups = groups_of.get(seal.trajectory_id, [])
        if not groups:
            result.found("lost", f"{seal.trajectory_id} has no row")
        elif len(groups) > 1:
            result.found("duplicated", f"{seal.trajectory_id} has {len(groups)} rows")
        elif groups != [seal.group_id]:
            result.found("wrong_group", f"the row of {seal.trajectory_id} says {groups[0]}")


def _audit_groups(expected: Expected, rollouts: dict[str, Rollout], arrived: Arrived, result: Audit) -> None:
    decided = _decided(expected, rollouts, arrived, result)
    stored = {group_id for group_id, run_id in arrived.group_rows if run_id == expected.run_id}
    for group_id in expected.groups:
        if group_id not in decided:
            result.found("lost", f"{group_id} was never decided")
        elif group_id not in stored:
            result.found("lost", f"{group_id} has no row")
    for rollout in expected.rollouts:
        members = decided.get(rollout.group_id)
        if members is not None and rollout.registered and rollout.trajectory_id not in members:
            result.found("lost", f"{rollout.group_id} was decided without {rollout.trajectory_id}")


def _audit_batches(
    expected: Expected,
    rollouts: dict[str, Rollout],
    arrived: Arrived,
    batch_groups: int,
    result: Audit,
) -> None:
    in_batches: dict[str, set[str]] = defaultdict(set)
    bytes_of: dict[str, bytes] = {}
    for batch in arrived.batches:
        if batch.run_id != expected.run_id:
            continue
        if batch.batch_id not in bytes_of:
            bytes_of[batch.batch_id] = encode(batch)
            _audit_batch(batch, rollouts, arrived, result)
        elif bytes_of[batch.batch_id] != encode(batch):
            result.found("ready_twice", f"batch {batch.batch_id} was released in two ways")
        for group in batch.groups:
            in_batches[group.group_id].add(batch.batch_id)
    ready = {
        event.group_id
        for event in arrived.decisions
        if isinstance(event, GroupReady) and event.run_id == expected.run_id
    }
    waiting = sorted(ready - in_batches.keys())
    if len(waiting) >= batch_groups:
        for group_id in waiting:
            result.found("lost", f"{group_id} is ready and in no batch")
    for group_id, batches in in_batches.items():
        if len(batches) > 1:
            result.found("ready_twice", f"{group_id} stands in batches {', '.join(sorted(batches))}")


def _audit_batch(batch: BatchReady, rollouts: dict[str, Rollout], arrived: Arrived, result: Audit) -> None:
    if batch.batch_id not in arrived.batch_rows:
        result.found("lost", f"batch {batch.batch_id} has no row")
    for group_id, count in Counter(group.group_id for group in batch.groups).items():
        if count > 1:
            result.found("ready_twice", f"{group_id} stands {count} times in batch {batch.batch_id}")
    for group in batch.groups:
        for member in group.members:
            rollout = rollouts.get(member.trajectory_id)
            if rollout is None or rollout.group_id != group.group_id:
                note = f"batch {batch.batch_id} has {member.trajectory_id} under {group.group_id}"
                result.found("wrong_group", note)


def _decided(
    expected: Expected, rollouts: dict[str, Rollout], arrived: Arrived, result: Audit
) -> dict[str, set[str]]:
    """Members of each group that has a decision, by trajectory id."""
    decided: dict[str, dict[int, bytes]] = defaultdict(dict)
    members: dict[str, set[str]] = defaultdict(set)
    for event in arrived.decisions:
        if event.run_id != expected.run_id:
            continue
        known = decided[event.group_id].setdefault(event.version, encode(event))
        if known != encode(event):
            note = f"{event.group_id} was decided in two ways at version {event.version}"
            result.found("ready_twice", note)
        members[event.group_id] |= {member.trajectory_id for member in event.members}
        for member in event.members:
            rollout = rollouts.get(member.trajectory_id)
            if rollout is None or rollout.group_id != event.group_id:
                result.found("wrong_group", f"{member.trajectory_id} is a member of {event.group_id}")
    return members
