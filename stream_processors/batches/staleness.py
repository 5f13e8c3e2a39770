"""How far a waiting group is behind the newest weights, asked when its batch is about to leave. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentworld.contract.events import VerdictGiven
from agentworld.contract.ids import derived_id
from stream_processors.batches.state import GroupEntry

RULE = "staleness"


@dataclass(frozen=True, slots=True)
class Lag:
    """The largest distance of a group's trajectory to its policy."""

    versions: int
    newest: int
    oldest: int


def oldest_version(entry: GroupEntry) -> int | None:
    """The oldest version that a step of the group was sampled under."""
    members = entry.group.members if entry.group is not None else []
    versions = [m.policy_version_min for m in members if m.policy_version_min is not None]
    return min(versions, default=None)


def lag_of(entry: GroupEntry, newest: Mapping[str, int]) -> Lag | None:
    """The group's lag; None where neither side's version is known."""
    members = entry.group.members if entry.group is not None else []
    lags = [
        Lag(newest[m.policy] - m.policy_version_min, newest[m.policy], m.policy_version_min)
        for m in members
        if m.policy_version_min is not None and m.policy in newest
    ]
    return max(lags, key=lambda lag: lag.versions, default=None)


def stale_verdict(
    entry: GroupEntry, lag: Lag, *, limit: int, event_time_ms: int, source: str
) -> VerdictGiven:
    """What tells the group processor that the group went stale while it waited."""
    assert entry.group is not None
    return VerdictGiven(
        event_id=derived_id("group_stale", entry.group_id, entry.version),
        event_time_ms=event_time_ms,
        source=source,
        prompt_id=entry.group.prompt_id,
        group_id=entry.group_id,
        decision="reject",
        given_by_kind="rule",
        given_by=RULE,
        reason=f"sampled {lag.versions} versions before the newest, over the limit of {limit}",
        value={
            "policy_lag": lag.versions,
            "max_policy_lag": limit,
            "newest_version": lag.newest,
            "oldest_version": lag.oldest,
            "group_version": entry.version,
        },
    )
