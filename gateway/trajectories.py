"""What the control routes do to trajectories: register, complete, reward. Mints the events."""

from __future__ import annotations

import time
from typing import Any, Literal

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import (
    DirectoryUpdated,
    Event,
    Json,
    Outcome,
    RewardAssigned,
    TrajectoryCompleted,
    TrajectoryRegistered,
    VerdictGiven,
)
from agentworld.contract.events.trajectory_events import Decision
from agentworld.contract.ids import check_name, derived_id, group_id, new_id
from agentworld.contract.topics import TRAJECTORY_DIRECTORY, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Publisher
from gateway.access import without_tokens
from gateway.directory import Directory, DirectoryAway, Entry, find_entry, known_entry, moved


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def record_of(event: Event) -> OutRecord:
    """The record for topic `trajectory-events`. Raises `InvalidInput` where it cannot be written as JSON."""
    try:
        return OutRecord.of(TRAJECTORY_EVENTS, event)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, ValueError) as exc:
        raise InvalidInput(
            f"a value in the body cannot be stored ({exc}): send valid Unicode and 64-bit numbers",
            code="invalid_value",
            status=422,
        ) from exc


class Trajectories:
    """Registers, completes and rewards. Returns once what happened is durable."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        directory: Directory,
        source: str,
        default_run_id: str,
        default_rollouts: int,
        default_raw_content: bool = False,
    ) -> None:
        self._publisher = publisher
        self._directory = directory
        self._source = source
        self._default_run_id = default_run_id
        self._default_rollouts = default_rollouts
        self._default_raw_content = default_raw_content

    async def _say(self, event: Event) -> None:
        await self._publisher.publish(record_of(event))

    async def _list(self, entry: Entry) -> None:
        event = DirectoryUpdated(
            event_id=new_id(),
            event_time_ms=now_ms(),
            source=self._source,
            trajectory_id=entry.trajectory_id,
            prompt_id=entry.prompt_id,
            run_id=entry.run_id,
            channel=entry.channel,
            policy=entry.policy,
            state=entry.state,
            raw_content=entry.raw_content,
        )
        await self._publisher.publish(OutRecord.of(TRAJECTORY_DIRECTORY, event))
        self._directory.put(entry)

    async def register(
        self,
        trajectory_id: str,
        prompt_id: str,
        *,
        channel: str,
        metadata: Json,
        registered_by: Literal["client", "gateway"] = "client",
    ) -> Entry:
        """Register, or change nothing where it is registered the same way.

        Raises `InvalidInput`: 422 for a bad name or number, 409 where it is registered otherwise.
        """
        entry = Entry(
            trajectory_id=check_name(trajectory_id, "trajectory id"),
            prompt_id=check_name(prompt_id, "prompt id"),
            run_id=check_name(_text(metadata, "run_id") or self._default_run_id, "run id"),
            channel=check_name(channel, "channel"),
            policy=check_name(_text(metadata, "policy") or "default", "policy"),
            raw_content=_flag(metadata, "raw_content", self._default_raw_content),
        )
        rollouts = _number(metadata, "n_rollouts", least=1)
        round_index = _number(metadata, "round", least=0) or 0
        rollout_index = _number(metadata, "rollout_index", least=0)
        try:
            known = await find_entry(self._directory, trajectory_id, prompt_id)
        except DirectoryAway:
            known = None
        if known is not None:
            _check_same(known, entry)
            return known
        event = TrajectoryRegistered(
            event_id=derived_id("registered", trajectory_id, prompt_id),
            event_time_ms=now_ms(),
            source=self._source,
            trajectory_id=trajectory_id,
            prompt_id=prompt_id,
            run_id=entry.run_id,
            channel=channel,
            round=round_index,
            rollouts=rollouts or self._default_rollouts,
            group_id=group_id(entry.run_id, channel, round_index, prompt_id),
            rollout_index=rollout_index,
            policy=entry.policy,
            parent_trajectory_id=_text(metadata, "parent_trajectory_id"),
            replaces_trajectory_id=_text(metadata, "replaces_trajectory_id"),
            registered_by=registered_by,
            metadata=metadata,
        )
        await self._say(event)
        await self._list(entry)
        return entry

    async def complete(
        self, trajectory_id: str, prompt_id: str, *, outcome: Outcome, reason: str, reward: float | None
    ) -> None:
        """Say that the rollout is over, with its reward if there is one. Again is harmless."""
        entry = await known_entry(self._directory, trajectory_id, prompt_id)
        if reward is not None:
            await self.reward(trajectory_id, prompt_id, value=reward)
        if entry.state != "open":
            return
        event = TrajectoryCompleted(
            event_id=derived_id("completed", trajectory_id, prompt_id),
            event_time_ms=now_ms(),
            source=self._source,
            trajectory_id=trajectory_id,
            prompt_id=prompt_id,
            outcome=outcome,
            reason=without_tokens(reason),
        )
        await self._say(event)
        if entry.run_id:
            await self._list(moved(entry, "completed"))

    async def reward(
        self,
        trajectory_id: str,
        prompt_id: str,
        *,
        value: float,
        name: str = "reward",
        step_id: str | None = None,
        version: int = 1,
        given_by: str = "",
        extra: Json | None = None,
    ) -> None:
        """Assign a reward to a registered trajectory or one of its steps, before or after its end."""
        await known_entry(self._directory, trajectory_id, prompt_id)
        event = RewardAssigned(
            event_id=new_id(),
            event_time_ms=now_ms(),
            source=self._source,
            trajectory_id=trajectory_id,
            prompt_id=prompt_id,
            value=value,
            name=check_name(name, "reward name"),
            step_id=step_id,
            version=version,
            given_by=given_by,
            extra=extra or {},
        )
        await self._say(event)

    async def verdict(
        self,
        trajectory_id: str,
        prompt_id: str,
        *,
        decision: Decision,
        whole_group: bool,
        group: str | None,
        round_index: int,
        given_by_kind: Literal["rule", "evaluator", "person"],
        given_by: str,
        reason: str,
        value: Json,
    ) -> str:
        """Decide whether a trajectory, or its group, may train; the group's id. The newest verdict counts."""
        entry = await known_entry(self._directory, trajectory_id, prompt_id)
        if group is None and not entry.run_id:
            raise Unavailable("the trajectory's run is not known while the broker is away: name `group_id`")
        decided = group or group_id(entry.run_id, entry.channel, round_index, prompt_id)
        event = VerdictGiven(
            event_id=new_id(),
            event_time_ms=now_ms(),
            source=self._source,
            prompt_id=prompt_id,
            group_id=decided,
            decision=decision,
            trajectory_id=None if whole_group else trajectory_id,
            given_by_kind=given_by_kind,
            given_by=given_by,
            reason=without_tokens(reason),
            value=value,
        )
        await self._say(event)
        return decided


def _check_same(known: Entry, asked: Entry) -> None:
    for field in ("run_id", "channel", "policy", "raw_content"):
        before, now = getattr(known, field), getattr(asked, field)
        if before != now:
            raise InvalidInput(
                f"trajectory {known.trajectory_id} is registered with {field} {before}, not {now}: "
                "use another trajectory id",
                code="registration_conflict",
                status=409,
            )


def _invalid(field: str, what: str) -> InvalidInput:
    return InvalidInput(f"metadata.{field} must be {what}", code="invalid_metadata", status=422)


def _text(metadata: Json, field: str) -> str | None:
    value: Any = metadata.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _invalid(field, "a string")
    return value


def _flag(metadata: Json, field: str, default: bool) -> bool:
    value: Any = metadata.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _invalid(field, "true or false")
    return value


def _number(metadata: Json, field: str, *, least: int) -> int | None:
    value: Any = metadata.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise _invalid(field, f"a whole number from {least} on")
    return value
