"""Topic `trajectory-directory` (compacted): which trajectories exist, for every gateway."""

from __future__ import annotations

from typing import Literal

from agentworld.contract.events.base import Event

TrajectoryState = Literal["open", "completed", "sealed"]


class DirectoryUpdated(Event, frozen=True, kw_only=True, tag="directory_updated"):
    """The newest state of one trajectory; any gateway can answer for it."""

    trajectory_id: str
    prompt_id: str
    run_id: str
    channel: str
    policy: str
    state: TrajectoryState
    raw_content: bool = False
    """Chat calls are answered with the sampled text as it is, tool calls unparsed."""
