"""The control routes (FastAPI, documented under `/docs`). Everything but the proxied calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, PlainTextResponse

import agentworld
from agentworld.contract.ids import new_id
from gateway.access import Access
from gateway.bodies import (
    Accepted,
    Completion,
    ComputedReward,
    Decided,
    Failed,
    Initialised,
    Registration,
    Reward,
    RewardQuestion,
    Status,
    Submission,
    TrajectoryStatus,
    Verdict,
)
from gateway.callers import TRUSTED, authorization
from gateway.control_errors import tell_errors
from gateway.described import document_proxied
from gateway.described_errors import error_reply, errors
from gateway.directory import Directory, known_entry
from gateway.rewarding import RewardFunction, compute_reward
from gateway.submitted import Submissions
from gateway.trajectories import Trajectories
from gateway.upstream import Upstream

TrajectoryId = Annotated[str, Path(description="Names the rollout.")]
PromptId = Annotated[str, Path(description="Names the task; rollouts of one task share it.")]
_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_OF_ENGINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "OpenAI's list of models.", "content": _OBJECT},
    "4XX": error_reply("The engine's own error."),
    "5XX": error_reply("The engine is away."),
}
Health = Callable[[], tuple[bool, dict[str, object]]]


def control_app(
    *,
    trajectories: Trajectories,
    submissions: Submissions,
    directory: Directory,
    upstream: Upstream,
    reward_function: RewardFunction | None,
    health: Health,
    public_url: str,
    access: Access,
) -> FastAPI:
    """The control API over its parts."""
    app = FastAPI(title="AgentWorld gateway", version=agentworld.__version__, description=__doc__)
    tell_errors(app)
    _trajectory_routes(app, trajectories, submissions, directory, public_url, access)
    _service_routes(app, upstream, health, reward_function)
    document_proxied(app)
    return app


def _trajectory_routes(
    app: FastAPI,
    trajectories: Trajectories,
    submissions: Submissions,
    directory: Directory,
    public_url: str,
    access: Access,
) -> None:
    @app.post("/init_trajectory", responses=errors())
    async def init_trajectory(request: Request) -> Initialised:
        """A fresh trajectory id. Put your prompt id in the place of `1` in `base_url`, then register.

        Where auth is on this takes an API key, and the id carries the token that its calls need.
        """
        trajectory = access.signed(new_id())
        base = public_url.rstrip("/") or str(request.base_url).rstrip("/")
        return Initialised(trajectory_uid=trajectory, base_url=f"{base}/{trajectory}/1/v1")

    @app.post("/{trajectory_id}/{prompt_id}/v1/register_trajectory", responses=errors(409, 503))
    async def register_trajectory(
        trajectory_id: TrajectoryId, prompt_id: PromptId, body: Registration | None = None
    ) -> Status:
        """Begin a rollout. Registering the same way again changes nothing."""
        body = body or Registration()
        await trajectories.register(
            trajectory_id, prompt_id, channel=body.channel, metadata=body.metadata or {}
        )
        return Status()

    @app.post("/{trajectory_id}/{prompt_id}/v1/complete_trajectory", responses=errors(404, 409, 503))
    async def complete_trajectory(
        trajectory_id: TrajectoryId, prompt_id: PromptId, body: Completion | None = None
    ) -> Status:
        """End a rollout, well or not, with its reward if it is known."""
        body = body or Completion()
        await trajectories.complete(
            trajectory_id, prompt_id, outcome=body.outcome, reason=body.reason, reward=body.reward
        )
        return Status()

    @app.post("/{trajectory_id}/{prompt_id}/v1/fail_trajectory", responses=errors(404, 409, 503))
    async def fail_trajectory(
        trajectory_id: TrajectoryId, prompt_id: PromptId, body: Failed | None = None
    ) -> Status:
        """End a rollout that came to nothing. It counts towards its group all the same."""
        body = body or Failed()
        await trajectories.complete(
            trajectory_id, prompt_id, outcome=body.outcome, reason=body.reason, reward=None
        )
        return Status()

    @app.post("/{trajectory_id}/{prompt_id}/v1/verdict", responses=errors(404, 409, 503))
    async def verdict(trajectory_id: TrajectoryId, prompt_id: PromptId, body: Verdict) -> Decided:
        """Decide whether a trajectory, or its whole group, may train; also after its end."""
        group = await trajectories.verdict(
            trajectory_id,
            prompt_id,
            decision=body.decision,
            whole_group=body.whole_group,
            group=body.group_id,
            round_index=body.round,
            given_by_kind=body.given_by_kind,
            given_by=body.given_by,
            reason=body.reason,
            value=body.value or {},
        )
        return Decided(group_id=group)

    @app.post("/{trajectory_id}/{prompt_id}/v1/reward", responses=errors(404, 409, 503))
    async def reward(trajectory_id: TrajectoryId, prompt_id: PromptId, body: Reward) -> Status:
        """Reward a trajectory or a step, also long after its end."""
        await trajectories.reward(
            trajectory_id,
            prompt_id,
            value=body.value,
            name=body.name,
            step_id=body.step_id,
            version=body.version,
            given_by=body.given_by,
            extra=body.extra,
        )
        return Status()

    @app.get("/{trajectory_id}/{prompt_id}/v1/trajectory", responses=errors(404, 409, 422, 503, body=False))
    async def trajectory(trajectory_id: TrajectoryId, prompt_id: PromptId) -> TrajectoryStatus:
        """What the gateway knows of a trajectory."""
        entry = await known_entry(directory, trajectory_id, prompt_id)
        return TrajectoryStatus(
            trajectory_id=trajectory_id,
            prompt_id=prompt_id,
            run_id=entry.run_id,
            channel=entry.channel,
            policy=entry.policy,
            state=entry.state,
        )

    @app.post("/submit_steps", responses=errors(409, 503))
    async def submit_steps(
        request: Request, body: Submission, channel: Annotated[str, Query()] = "train"
    ) -> Accepted:
        """Hand in steps that the agent sampled itself. All are durable, or none is answered for."""
        for step in body.steps:
            trusted = bool(request.scope.get(TRUSTED))
            step.trajectory_uid = access.opened(step.trajectory_uid, trusted=trusted)
        return Accepted(accepted=await submissions.submit(body.steps, channel=channel))


def _service_routes(
    app: FastAPI, upstream: Upstream, health: Health, reward_function: RewardFunction | None
) -> None:
    @app.post("/compute_reward", responses=errors(501, 502))
    async def compute(body: RewardQuestion) -> ComputedReward:
        """Score a response with the configured reward function; 501 where there is none."""
        return await compute_reward(reward_function, body)

    @app.get("/{trajectory_id}/{prompt_id}/v1/models", responses=_OF_ENGINES)
    async def models_of(trajectory_id: TrajectoryId, prompt_id: PromptId, request: Request) -> Response:
        """The same, for clients that are told one base URL."""
        return await models(request)

    @app.get("/v1/models", responses=_OF_ENGINES)
    async def models(request: Request) -> Response:
        """The engines' models."""
        listed = await upstream.models(authorization=authorization(request.scope))
        return Response(listed, media_type="application/json")

    @app.get("/health", responses={503: {"description": "Why calls cannot be captured.", "content": _OBJECT}})
    async def healthy() -> Response:
        """200 when calls can be captured, 503 with the reason otherwise."""
        able, details = health()
        return JSONResponse(details, status_code=200 if able else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus metrics."""
        upstream.measure()
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
