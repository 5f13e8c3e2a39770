"""Which steps of a sealed trajectory train. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agentworld.contract.events import TrajectorySealed


def trained_step_ids(parents: Mapping[str, str | None], *, tip: str | None) -> frozenset[str]:
    """Ids on the path from `tip` to its root; none without a tip, or where the tip is not there.

    `parents` gives the parent of each step that is not superseded; a path ends where its next is missing.
    """
    found: set[str] = set()
    cursor = tip
    while cursor is not None and cursor in parents and cursor not in found:
        found.add(cursor)
        cursor = parents[cursor]
    return frozenset(found)


def trained_in(sealed: TrajectorySealed) -> frozenset[str]:
    """Ids of the steps of the branch that trains, as the seal says."""
    return trained_step_ids(
        {placed.step.step_id: placed.parent_step_id for placed in sealed.steps if not placed.superseded},
        tip=sealed.trained_branch.tip_step_id if sealed.trained_branch else None,
    )
