"""From a call and the engine's answer to captured steps. Pure."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from agentworld.contract.delta import Leaf, Prompt, leaf_of, shorten
from agentworld.contract.events import (
    EngineCall,
    Json,
    RawJson,
    StepCaptured,
    StepError,
    StepRequest,
    TokenId,
    TokenSource,
)
from agentworld.contract.events.trajectory_events import StepStatus
from agentworld.contract.ids import new_id
from gateway.canonical import ChatCall
from gateway.continuing import continuation_of
from gateway.engine import Answer, Choice
from gateway.restore import as_seen


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is known of a call when it arrives."""

    step_id: str
    trajectory_id: str
    prompt_id: str
    policy: str
    policy_version: int | None
    """The gateway's view."""
    started_at_ms: int
    started: float
    """`time.perf_counter()` at arrival."""
    request: StepRequest


@dataclass(frozen=True, slots=True)
class Ending:
    """How the call ended."""

    status: StepStatus
    latency_ms: float
    first_token_ms: float | None = None
    policy_version: int | None = None
    """The gateway's view when it ended."""
    error: StepError | None = None


def token_array(ids: Sequence[TokenId] | None) -> array[int]:
    """Ids in 4 bytes each."""
    return array("I", ids or ())


def integrity_of(choice: Choice, answer: Answer) -> list[str]:
    """Named checks that fail for a choice of an answer; empty for one that can be trusted."""
    failed = []
    if answer.prompt_ids is None:
        failed.append("prompt_ids_missing")
    elif answer.prompt_tokens is not None and answer.prompt_tokens != len(answer.prompt_ids):
        failed.append("prompt_length_mismatch")
    if choice.ids is None:
        failed.append("ids_missing")
    if choice.logprobs is None:
        failed.append("logprobs_missing")
    if choice.ids is not None and choice.logprobs is not None and len(choice.ids) != len(choice.logprobs):
        failed.append("length_mismatch")
    counted = [len(c.ids) for c in answer.choices.values() if c.ids is not None]
    if len(counted) == len(answer.choices) and answer.response_tokens not in {None, sum(counted)}:
        failed.append("usage_mismatch")
    return failed


def captured_steps(
    arrival: Arrival,
    call: ChatCall,
    answer: Answer,
    ending: Ending,
    leaves: Sequence[Leaf],
    *,
    engine: str,
    source: str,
    metadata: Json | None = None,
) -> list[tuple[StepCaptured, Leaf | None]]:
    """One step per choice (one without a choice where the call failed), with the leaf of each good one."""
    seen_ids = call.seen_ids()
    prompt = Prompt(ids=token_array(answer.prompt_ids), messages=call.messages, tools=call.tools)
    delta = shorten(prompt, leaves)
    choices = [answer.choices[i] for i in sorted(answer.choices)] or [Choice(0)]
    # The gateway's view is of the trajectory's policy: it says nothing of a judge or of another policy.
    viewed = answer.trainable and answer.policy in {None, arrival.policy}
    engine_call = EngineCall(
        engine=answer.engine or engine,
        model=answer.model,
        request_id=answer.request_id,
        policy=arrival.policy if answer.policy is None else answer.policy,
        policy_version_start=_first(answer.version_start, arrival.policy_version if viewed else None),
        policy_version_end=_first(answer.version_end, ending.policy_version if viewed else None),
        logprobs_mode=answer.logprobs_mode,
    )
    steps: list[tuple[StepCaptured, Leaf | None]] = []
    for choice in choices:
        ok = ending.status == "ok"
        failed = integrity_of(choice, answer) if ok or choice.ids else []
        trusted = choice.ids is not None and not failed
        source_of_ids: TokenSource = "none"
        if answer.retokenized and choice.ids is not None:
            source_of_ids = "retokenized"
        elif trusted:
            source_of_ids = "engine"
        step = StepCaptured(
            event_id=arrival.step_id if choice is choices[0] else new_id(),
            event_time_ms=time.time_ns() // 1_000_000,
            source=source,
            step_id=arrival.step_id if choice is choices[0] else new_id(),
            trajectory_id=arrival.trajectory_id,
            prompt_id=arrival.prompt_id,
            status=ending.status,
            request=arrival.request,
            prompt=delta,
            response_ids=choice.ids or [],
            response_logprobs=choice.logprobs or [],
            message=choice.message or msgspec.UNSET,
            finish_reason=choice.finish_reason,
            token_source=source_of_ids,
            engine=engine_call,
            started_at_ms=arrival.started_at_ms,
            latency_ms=ending.latency_ms,
            first_token_ms=ending.first_token_ms,
            choice_index=choice.index,
            engine_response_tokens=answer.response_tokens if len(choices) == 1 else None,
            cached_tokens=answer.cached_tokens,
            integrity=failed,
            trainable=ok and source_of_ids == "engine" and answer.trainable,
            error=ending.error,
            continuation=continuation_of(call, answer),
            client_message=_client_message(choice, seen_ids),
            metadata=metadata if metadata and choice is choices[0] else {},
        )
        steps.append((step, _leaf(step, prompt) if ok else None))
    return steps


def _client_message(choice: Choice, seen_ids: Sequence[str]) -> RawJson:
    """The turn with the tool call ids that the client saw, where they are not the engine's."""
    ids = [tool["id"] for _, tool in sorted(choice.tool_calls.items())]
    if len(ids) != len(seen_ids) or ids == list(seen_ids) or (message := choice.message) is None:
        return msgspec.UNSET
    return msgspec.Raw(as_seen(bytes(message), seen_ids))


def _leaf(step: StepCaptured, prompt: Prompt) -> Leaf:
    leaf = leaf_of(step, Prompt(ids=(), messages=prompt.messages, tools=prompt.tools))
    ids = token_array(prompt.ids)
    ids.extend(step.response_ids)
    return Leaf(step_id=leaf.step_id, ids=ids, messages=leaf.messages, tools=leaf.tools)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
