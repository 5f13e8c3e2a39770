"""One full example per event type: what `freeze.py` turns into golden messages."""

from __future__ import annotations

import msgspec

from agentworld.contract import events as e
from agentworld.contract.delta import Leaf, Prompt, shorten
from agentworld.contract.events.trajectories import StepRelation
from agentworld.contract.ids import derived_id, group_id

STEP = "0199c0de-0000-7000-8000-000000000002"
BASE = "0199c0de-0000-7000-8000-000000000001"
TRAJECTORY = "0199c0de-0000-7000-8000-0000000000aa"
GROUP = group_id("run-1", "train", 0, "gsm8k-17")
AT = 1_790_000_000_000


def _id(name: str) -> str:
    return derived_id("example", name)


def _common(name: str, source: str) -> dict[str, object]:
    return {"event_id": _id(name), "event_time_ms": AT, "source": source}


def _prompt() -> e.PromptDelta:
    system = b'{"role":"system","content":"Be brief."}'
    sampled = b'{"role":"assistant","content":"4"}'
    user = '{"role":"user","content":"und 2+3? ✓"}'.encode()
    tools = b'[{"type":"function","function":{"name":"calculator"}}]'
    leaf = Leaf(step_id=BASE, ids=[1, 2, 3, 4], messages=[system, sampled], tools=tools)
    return shorten(Prompt(ids=[1, 2, 3, 4, 5, 6], messages=[system, sampled, user], tools=tools), [leaf])


def step() -> e.StepCaptured:
    return e.StepCaptured(
        event_id=STEP,
        event_time_ms=AT,
        source="gateway/0",
        step_id=STEP,
        trajectory_id=TRAJECTORY,
        prompt_id="gsm8k-17",
        status="ok",
        request=e.StepRequest(
            protocol="chat_completions",
            model="default",
            stream=True,
            sampling={"temperature": 1.0, "max_tokens": 64},
            fingerprint="9f86d081",
            retry_count=0,
            client="OpenAI/Python 3.57.0",
            client_ids={"x-session-id": "s-1"},
        ),
        prompt=_prompt(),
        response_ids=[7, 8],
        response_logprobs=[-0.25, -1.5],
        message=msgspec.Raw(b'{"role":"assistant","content":"5"}'),
        finish_reason="stop",
        token_source="engine",
        engine=e.EngineCall(
            engine="default",
            model="qwen3-8b",
            request_id="chatcmpl-1",
            policy="default",
            policy_version_start=3,
            policy_version_end=4,
            logprobs_mode="processed_logprobs",
        ),
        started_at_ms=AT - 500,
        latency_ms=412.5,
        first_token_ms=90.25,
        choice_index=0,
        engine_response_tokens=2,
        cached_tokens=4,
        integrity=["length_mismatch"],
        continuation=e.Continuation(step_id=BASE, kept_tokens=4, drifted=True),
        trainable=False,
        error=e.StepError(code="upstream_cut", message="the engine closed the stream", http_status=502),
        client_message=msgspec.Raw(b'{"role":"assistant","content":"five"}'),
        extras={"routed_experts": "s3://x"},
        metadata={"turn": 2},
    )


def sealed_tree() -> e.TrajectorySealed:
    """A conversation of two steps, the retry of its second, a rewrite, a sub-agent and a side call."""
    ids = [f"0199c0de-0000-7000-8000-00000000000{n}" for n in range(1, 7)]
    root, answer, retried, rewritten, sub_agent, side_call = ids
    tree: list[tuple[str, str | None, StepRelation]] = [
        (root, None, "root"),
        (retried, root, "extends"),
        (answer, root, "extends"),
        (rewritten, root, "rewritten"),
        (sub_agent, answer, "sub_agent"),
        (side_call, answer, "side_call"),
    ]
    whole = shorten(Prompt(ids=[1, 2], messages=[b'{"role":"user","content":"2+3?"}'], tools=None), [])
    return e.TrajectorySealed(
        **_common("sealed tree", "stream-processors.trajectory"),  # type: ignore[arg-type]
        trajectory_id=TRAJECTORY,
        prompt_id="gsm8k-17",
        run_id="run-1",
        channel="train",
        group_id=GROUP,
        round=0,
        rollouts=4,
        rollout_index=2,
        policy="default",
        outcome="succeeded",
        outcome_reason="",
        seal_reason="completed",
        registered_at_ms=AT - 9000,
        steps=[
            e.SealedStep(
                step_index=index,
                step=msgspec.structs.replace(
                    step(),
                    step_id=step_id,
                    event_id=step_id,
                    prompt=whole,
                    status="ok",
                    error=None,
                    trainable=True,
                    continuation=None,
                ),
                relation=relation,
                superseded=step_id == retried,
                parent_step_id=parent,
            )
            for index, (step_id, parent, relation) in enumerate(tree)
        ],
        rewards=[_reward()],
        reward=1.0,
        integrity=e.IntegrityReport(),
        branches=[
            e.Branch(tip_step_id=answer, opened_as="root", steps=2),
            e.Branch(tip_step_id=rewritten, opened_as="root", steps=2),
            e.Branch(tip_step_id=sub_agent, opened_as="sub_agent", steps=1),
            e.Branch(tip_step_id=side_call, opened_as="side_call", steps=1),
        ],
        trained_branch=e.TrainedBranch(
            tip_step_id=answer, steps=2, rule="last_answer_of_main_conversation", reason="2 of 6 steps"
        ),
    )


def _reward() -> e.Reward:
    return e.Reward(name="reward", value=1.0, step_id=None, version=2, given_by="exact_match", extra={"n": 1})


def member() -> e.GroupMember:
    return e.GroupMember(
        trajectory_id=TRAJECTORY,
        place=e.Place(topic="trajectories", partition=3, offset=41),
        outcome="succeeded",
        reward=1.0,
        steps=2,
        prompt_tokens=10,
        response_tokens=4,
        policy_version_min=3,
        policy_version_max=4,
        sealed_at_ms=AT,
        clean=True,
        rollout_index=2,
        policy="default",
    )


def verdict() -> e.VerdictGiven:
    return e.VerdictGiven(
        **_common("verdict", "console"),  # type: ignore[arg-type]
        prompt_id="gsm8k-17",
        group_id=GROUP,
        decision="reject",
        trajectory_id=TRAJECTORY,
        given_by_kind="person",
        given_by="ada",
        reason="leaks the answer",
        value={"seen": 1},
    )


def published() -> e.PolicyPublished:
    return e.PolicyPublished(
        **_common("policy", "trainer"),  # type: ignore[arg-type]
        policy="default",
        version=4,
        weights_uri="file:///w/4",
        digest="sha256:00",
        run_id="run-1",
        batch_id=_id("batch-id"),
        rollback_of=2,
    )


def consumed() -> e.BatchConsumed:
    return e.BatchConsumed(
        **_common("consumed", "trainer"),  # type: ignore[arg-type]
        run_id="run-1",
        channel="train",
        batch_id=_id("batch-id"),
        consumer="verl-0",
        policy="default",
        policy_version=4,
    )


def _group(name: str) -> dict[str, object]:
    return {
        **_common(name, "stream-processors.group"),
        "group_id": GROUP,
        "run_id": "run-1",
        "channel": "train",
        "round": 0,
        "prompt_id": "gsm8k-17",
    }


def _decision(name: str) -> dict[str, object]:
    return {
        **_group(name),
        "rollouts": 4,
        "version": 1,
        "members": [member()],
        "reason": "4 of 4 rollouts sealed",
        "decided_by": "wait",
        "details": {"limit": 4},
    }


def all_examples() -> dict[str, list[e.Event]]:
    """Examples by topic name."""
    ids = {"trajectory_id": TRAJECTORY, "prompt_id": "gsm8k-17"}
    run = {"run_id": "run-1", "channel": "train"}
    gateway = "gateway/0"
    clock = e.ClockTicked(**_common("tick", "stream-processors/0"), partition=3)  # type: ignore[arg-type]
    return {
        "trajectory-events": [
            e.TrajectoryRegistered(
                **_common("registered", gateway),
                **ids,
                **run,
                round=0,
                rollouts=4,  # type: ignore[arg-type]
                group_id=GROUP,
                rollout_index=2,
                policy="default",
                parent_trajectory_id="p",
                replaces_trajectory_id="r",
                registered_by="client",
                metadata={"data_source": "gsm8k"},
            ),
            step(),
            e.TrajectoryCompleted(**_common("completed", gateway), **ids, outcome="failed", reason="wrong"),  # type: ignore[arg-type]
            e.RewardAssigned(
                **_common("reward", gateway),
                **ids,
                value=0.5,
                name="judge",
                step_id=STEP,  # type: ignore[arg-type]
                version=2,
                given_by="judge-1",
                extra={"why": "close"},
            ),
            verdict(),
            clock,
        ],
        "trajectories": [
            e.TrajectorySealed(
                **_common("sealed", "stream-processors.trajectory"),
                **ids,
                **run,
                group_id=GROUP,  # type: ignore[arg-type]
                round=0,
                rollouts=4,
                rollout_index=2,
                policy="default",
                outcome="succeeded",
                outcome_reason="",
                seal_reason="completed",
                registered_at_ms=AT - 9000,
                steps=[e.SealedStep(step_index=0, step=step(), relation="extends", superseded=False)],
                rewards=[_reward()],
                reward=1.0,
                integrity=e.IntegrityReport(
                    missing_bases=[BASE], steps_misaligned=1, gaps={"missing_base": 1}
                ),
                metadata={"data_source": "gsm8k"},
            ),
            sealed_tree(),
            e.TrajectoryRevised(
                **_common("revised", "stream-processors.trajectory"),
                **ids,
                **run,
                group_id=GROUP,  # type: ignore[arg-type]
                rewards=[_reward()],
                reward=1.0,
                revision=1,
                late_steps=1,
            ),
            verdict(),
            published(),
            clock,
        ],
        "groups": [
            *(
                kind(**_decision(kind.__name__))  # type: ignore[arg-type]
                for kind in (
                    e.GroupReady,
                    e.GroupPartial,
                    e.GroupHeld,
                    e.GroupRejected,
                    e.GroupExpired,
                    e.GroupRevised,
                )
            ),
            e.RolloutWanted(
                **_group("wanted"),  # type: ignore[arg-type]
                rollouts=4,
                replaces_trajectory_id=TRAJECTORY,
                attempt=1,
                reason="abandoned: no event for 600000 ms of log time",
            ),
            e.RolloutsConflicted(
                **_group("conflicted"),  # type: ignore[arg-type]
                trajectory_id=TRAJECTORY,
                rollouts=4,
                conflicting_rollouts=8,
            ),
            consumed(),
            published(),
            clock,
        ],
        "ready-batches": [
            e.BatchReady(
                **_common("batch", "stream-processors.batch"),
                **run,
                batch_id=_id("batch-id"),
                sequence=7,  # type: ignore[arg-type]
                groups=[
                    e.BatchGroup(
                        group_id=GROUP,
                        prompt_id="gsm8k-17",
                        round=0,
                        version=1,
                        rollouts=4,
                        members=[member()],
                    )
                ],
                trajectories=1,
                steps=2,
                response_tokens=4,
                policy_version_min=3,
                policy_version_max=4,
                reason="full",
                replay_of="run-0",
                details={"rules": "sha256:00"},
            ),
        ],
        "policy-versions": [
            published(),
        ],
        "training-events": [
            consumed(),
            e.StepTrained(
                **_common("trained", "trainer"),
                **run,
                batch_id=_id("batch-id"),
                policy="default",  # type: ignore[arg-type]
                policy_version=4,
                optimizer_step=12,
                metrics={"actor/pg_loss": 0.125},
                details={"lr": "1e-6"},
            ),
        ],
        "trajectory-directory": [
            e.DirectoryUpdated(
                **_common("directory", gateway),
                **ids,
                **run,
                policy="default",
                state="open",  # type: ignore[arg-type]
            ),
        ],
    }
