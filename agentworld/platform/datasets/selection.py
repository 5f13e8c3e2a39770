"""Which batches, and which trajectories of them, a dataset is made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import BatchReady


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was asked for; every condition narrows, none stands for all."""

    run_id: str | None = None
    channel: str | None = None
    batch_ids: frozenset[str] | None = None
    """Asked for by id: each must be there."""
    trajectory_ids: frozenset[str] | None = None
    group_ids: frozenset[str] | None = None
    sql: str | None = None
    """The query that gave the ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Batches by run, channel and sequence, cut down to what was asked for."""

    batches: Sequence[BatchReady]
    not_batched: int
    """How many selected trajectories or groups are in no batch."""


def choose(batches: Iterable[BatchReady], selection: Selection) -> Chosen:
    """Raises `InvalidInput` where a batch asked for is unknown, or nothing is left."""
    by_id = {batch.batch_id: batch for batch in batches}
    if unknown := sorted((selection.batch_ids or frozenset()) - by_id.keys()):
        raise InvalidInput(
            f"no batch has the id {', '.join(map(repr, unknown[:3]))}"
            f"{f' (and {len(unknown) - 3} more)' if len(unknown) > 3 else ''}: "
            "`agentworld batches tail` lists those there are",
            code="unknown_batch",
            status=404,
        )
    cut = [_cut(batch, selection) for batch in by_id.values() if _wanted(batch, selection)]
    chosen = sorted(
        (batch for batch in cut if batch.groups),
        key=lambda batch: (batch.run_id, batch.channel, batch.sequence, batch.batch_id),
    )
    if not chosen:
        raise InvalidInput(
            "no batch holds what was asked for: `agentworld batches tail` lists those there are",
            code="nothing_matched",
            status=404,
        )
    groups = [group for batch in chosen for group in batch.groups]
    found_trajectories = {member.trajectory_id for group in groups for member in group.members}
    missing = (selection.trajectory_ids or frozenset()) - found_trajectories
    missing |= (selection.group_ids or frozenset()) - {group.group_id for group in groups}
    return Chosen(batches=chosen, not_batched=len(missing))


def _wanted(batch: BatchReady, selection: Selection) -> bool:
    return (
        selection.run_id in (None, batch.run_id)
        and selection.channel in (None, batch.channel)
        and (selection.batch_ids is None or batch.batch_id in selection.batch_ids)
    )


def _cut(batch: BatchReady, selection: Selection) -> BatchReady:
    groups = [
        msgspec.structs.replace(
            group,
            members=[
                member
                for member in group.members
                if selection.trajectory_ids is None or member.trajectory_id in selection.trajectory_ids
            ],
        )
        for group in batch.groups
        if selection.group_ids is None or group.group_id in selection.group_ids
    ]
    return msgspec.structs.replace(batch, groups=[group for group in groups if group.members])
