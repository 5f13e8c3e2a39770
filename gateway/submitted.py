"""Steps that agents sampled themselves and hand in as token ids."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.contract.delta import Leaf, Prompt, ids_digest, leaf_of, shorten
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import EngineCall, RewardAssigned, StepCaptured, StepRequest, TokenSource
from agentworld.contract.ids import derived_id
from agentworld.platform.log import Publisher
from gateway.bodies import SubmittedStep
from gateway.capture import token_array
from gateway.directory import Directory, DirectoryAway, Entry, find_entry
from gateway.leaves import LeafCache
from gateway.trajectories import Trajectories, now_ms, record_of


def check_steps(steps: Sequence[SubmittedStep]) -> None:
    """Raise `InvalidInput` 422 for steps whose ids and log-probabilities do not fit together."""
    for place, step in enumerate(steps):
        logprobs = step.rollout_log_probs
        if logprobs is not None and len(logprobs) != len(step.response_ids):
            raise InvalidInput(
                f"steps[{place}] has {len(step.response_ids)} response_ids and {len(logprobs)} "
                "rollout_log_probs: send one log-probability per response id, or none at all",
                code="length_mismatch",
                status=422,
            )


def submitted_step(
    step: SubmittedStep, entry: Entry, leaves: Sequence[Leaf], *, started_at_ms: int, source: str
) -> tuple[StepCaptured, Leaf]:
    """The captured step and its leaf. The same step handed in again has the same id. Pure."""
    prompt = Prompt(ids=token_array(step.prompt_ids), messages=(), tools=None)
    step_id = derived_id(
        "submitted",
        step.trajectory_uid,
        step.step_index,
        ids_digest(step.prompt_ids),
        ids_digest(step.response_ids),
    )
    extras = {"step_index": step.step_index}
    for name in ("multi_modal_data", "routed_experts"):
        if (value := getattr(step, name)) is not None:
            extras[name] = value
    source_of_ids: TokenSource = "engine"
    aligned = step.rollout_log_probs is not None
    captured = StepCaptured(
        event_id=step_id,
        event_time_ms=started_at_ms,
        source=source,
        step_id=step_id,
        trajectory_id=step.trajectory_uid,
        prompt_id=step.prompt_uid,
        status="ok",
        request=StepRequest(protocol="submitted", model="", stream=False),
        prompt=shorten(prompt, [leaf for leaf in leaves if leaf.step_id != step_id]),
        response_ids=step.response_ids,
        response_logprobs=step.rollout_log_probs or [],
        finish_reason=None,
        token_source=source_of_ids,
        engine=EngineCall(
            engine="submitted",
            policy=entry.policy,
            policy_version_start=step.policy_version,
            policy_version_end=step.policy_version,
        ),
        started_at_ms=started_at_ms,
        latency_ms=0.0,
        integrity=[] if aligned else ["logprobs_missing"],
        trainable=aligned,
        extras=extras,
        metadata=step.metadata or {},
    )
    leaf = leaf_of(captured, Prompt(ids=(), messages=(), tools=None))
    ids = token_array(step.prompt_ids)
    ids.extend(step.response_ids)
    return captured, Leaf(step_id=leaf.step_id, ids=ids, messages=leaf.messages, tools=None)


class Submissions:
    """Takes submissions in. Registers unknown trajectories with the run's defaults."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        directory: Directory,
        trajectories: Trajectories,
        leaves: LeafCache,
        source: str,
    ) -> None:
        self._publisher = publisher
        self._directory = directory
        self._trajectories = trajectories
        self._leaves = leaves
        self._source = source

    async def submit(self, steps: Sequence[SubmittedStep], *, channel: str) -> int:
        """How many steps are durable: all of them. Handing the same ones in again is harmless."""
        check_steps(steps)
        entries = {}
        for step in steps:
            entries[step.trajectory_uid] = await self._entry(step, channel)
        base_ms = now_ms()
        ordered = sorted(steps, key=lambda step: step.step_index)
        for place, step in enumerate(ordered):
            entry = entries[step.trajectory_uid]
            # Steps are ordered by start time, so those of one submission get a millisecond each.
            await self._take(step, entry, started_at_ms=base_ms + place)
        for step in ordered:
            if step.is_last:
                await self._trajectories.complete(
                    step.trajectory_uid, step.prompt_uid, outcome="succeeded", reason="", reward=None
                )
        return len(steps)

    async def _entry(self, step: SubmittedStep, channel: str) -> Entry:
        """The trajectory, registered now where it was not."""
        try:
            entry = await find_entry(self._directory, step.trajectory_uid, step.prompt_uid)
        except DirectoryAway:
            entry = None
        if entry is None:
            entry = await self._trajectories.register(
                step.trajectory_uid,
                step.prompt_uid,
                channel=channel,
                metadata=step.metadata or {},
                registered_by="gateway",
            )
        if entry.state != "open":
            raise InvalidInput(
                f"trajectory {step.trajectory_uid} is {entry.state} and takes no more steps",
                code="trajectory_completed",
                status=409,
            )
        return entry

    async def _take(self, step: SubmittedStep, entry: Entry, *, started_at_ms: int) -> None:
        captured, leaf = submitted_step(
            step,
            entry,
            self._leaves.recent(step.trajectory_uid),
            started_at_ms=started_at_ms,
            source=self._source,
        )
        await self._publisher.publish(record_of(captured))
        self._leaves.add(step.trajectory_uid, leaf)
        if step.reward is not None:
            reward = RewardAssigned(
                event_id=derived_id("reward", captured.step_id),
                event_time_ms=started_at_ms,
                source=self._source,
                trajectory_id=step.trajectory_uid,
                prompt_id=step.prompt_uid,
                value=step.reward,
                step_id=captured.step_id,
            )
            await self._publisher.publish(record_of(reward))
