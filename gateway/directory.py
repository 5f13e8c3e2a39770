"""Which trajectories exist, as this gateway knows it, and whether a call may belong to one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Protocol

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import DirectoryUpdated
from agentworld.contract.events.directory import TrajectoryState
from agentworld.contract.ids import check_name

_ORDER: dict[TrajectoryState, int] = {"open": 0, "completed": 1, "sealed": 2}


class DirectoryAway(Unavailable):
    """Nobody can say now whether the trajectory exists: the broker is away, or was until just now."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One trajectory."""

    trajectory_id: str
    prompt_id: str
    run_id: str
    channel: str
    policy: str
    state: TrajectoryState = "open"
    raw_content: bool = False
    """Chat calls are answered with the sampled text as it is, tool calls unparsed."""

    @classmethod
    def of(cls, event: DirectoryUpdated) -> Entry:
        """The entry that a record of the directory topic describes."""
        return cls(
            trajectory_id=event.trajectory_id,
            prompt_id=event.prompt_id,
            run_id=event.run_id,
            channel=event.channel,
            policy=event.policy,
            state=event.state,
            raw_content=event.raw_content,
        )


class Directory(Protocol):
    """Answers whether a trajectory exists."""

    def put(self, entry: Entry) -> Entry:
        """Take in news of a trajectory; what is known of it then. States only move forward."""
        ...

    def get(self, trajectory_id: str) -> Entry | None:
        """What is known here, without asking anybody."""
        ...

    async def find(self, trajectory_id: str) -> Entry | None:
        """The trajectory, or None where none is registered anywhere.

        Raises `DirectoryAway` where that cannot be known now, `Unavailable` to try again soon.
        """
        ...


class LocalDirectory:
    """A bounded directory in memory. Sealed trajectories are forgotten first."""

    def __init__(self, *, max_trajectories: int = 500_000) -> None:
        self._max = max_trajectories
        self._live: OrderedDict[str, Entry] = OrderedDict()
        self._sealed: OrderedDict[str, Entry] = OrderedDict()
        self.forgot_live = False
        """Whether a trajectory that may still get calls had to be forgotten."""

    def __len__(self) -> int:
        return len(self._live) + len(self._sealed)

    def put(self, entry: Entry) -> Entry:
        """Take in news; an older state, or another prompt for a known trajectory, changes nothing."""
        known = self.get(entry.trajectory_id)
        if known is not None and (
            known.prompt_id != entry.prompt_id or _ORDER[entry.state] <= _ORDER[known.state]
        ):
            return known
        if entry.state == "sealed":
            self._live.pop(entry.trajectory_id, None)
            self._sealed[entry.trajectory_id] = entry
        else:
            self._live[entry.trajectory_id] = entry
        while len(self) > self._max:
            if self._sealed:
                self._sealed.popitem(last=False)
            else:
                self._live.popitem(last=False)
                self.forgot_live = True
        return entry

    def get(self, trajectory_id: str) -> Entry | None:
        """What is known; a lookup keeps a live trajectory from being forgotten."""
        entry = self._live.get(trajectory_id)
        if entry is not None:
            self._live.move_to_end(trajectory_id)
            return entry
        return self._sealed.get(trajectory_id)

    async def find(self, trajectory_id: str) -> Entry | None:
        """What is known here is all there is."""
        return self.get(trajectory_id)


async def find_entry(directory: Directory, trajectory_id: str, prompt_id: str) -> Entry | None:
    """The trajectory, checked against the prompt in the path; None where it is not registered.

    Raises `InvalidInput` 409 for another prompt and 422 for a bad name, `DirectoryAway` where nobody can say.
    """
    entry = directory.get(trajectory_id)
    if entry is None:
        check_name(trajectory_id, "trajectory id")
        check_name(prompt_id, "prompt id")
        entry = await directory.find(trajectory_id)
    if entry is not None and entry.prompt_id != prompt_id:
        raise InvalidInput(
            f"trajectory {trajectory_id} belongs to prompt {entry.prompt_id}, not {prompt_id}: use the "
            "prompt id it was registered with, or another trajectory id",
            code="prompt_mismatch",
            status=409,
        )
    return entry


async def known_entry(directory: Directory, trajectory_id: str, prompt_id: str) -> Entry:
    """The trajectory in whatever state. Raises `InvalidInput` 404 where it is not registered.

    While the broker is away an unknown trajectory is taken on trust: the trajectory
    processor judges it later.
    """
    try:
        entry = await find_entry(directory, trajectory_id, prompt_id)
    except DirectoryAway:
        return Entry(trajectory_id, prompt_id, run_id="", channel="", policy="default")
    if entry is None:
        raise InvalidInput(
            f"trajectory {trajectory_id} is not registered: call POST "
            f"/{trajectory_id}/{prompt_id}/v1/register_trajectory first",
            code="unknown_trajectory",
            status=404,
        )
    return entry


async def open_entry(directory: Directory, trajectory_id: str, prompt_id: str) -> Entry:
    """The trajectory, if it takes calls. Raises `InvalidInput` 404 or 409."""
    entry = await known_entry(directory, trajectory_id, prompt_id)
    if entry.state != "open":
        raise InvalidInput(
            f"trajectory {trajectory_id} is {entry.state} and takes no more steps: register a new trajectory",
            code="trajectory_completed",
            status=409,
        )
    return entry


def moved(entry: Entry, state: TrajectoryState) -> Entry:
    """The entry in another state."""
    return replace(entry, state=state)
