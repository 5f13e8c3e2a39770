"""The control routes (FastAPI, documented under `/docs`). Everything but the proxied calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

import agentworld
from agentworld.contract.errors import AgentWorldError
from agentworld.contract.ids import new_id
from gateway.bodies import (
    Accepted,
    Completion,
    Initialised,
    Registration,
    Reward,
    Status,
    Submission,
    TrajectoryStatus,
)
from gateway.dialects import DIALECTS
from gateway.directory import Directory, known_entry
from gateway.failures import Failure, error_object
from gateway.submitted import Submissions
from gateway.trajectories import Trajectories
from gateway.upstream import Upstream, UpstreamFailed

TrajectoryId = Annotated[str, Path(description="Names the rollout.")]
PromptId = Annotated[str, Path(description="Names the task; rollouts of one task share it.")]
Health = Callable[[], tuple[bool, dict[str, object]]]


def control_app(
    *,
    trajectories: Trajectories,
    submissions: Submissions,
    directory: Directory,
    upstream: Upstream,
    health: Health,
    public_url: str,
) -> FastAPI:
    """The control API over its parts."""
    app = FastAPI(title="AgentWorld gateway", version=agentworld.__version__, description=__doc__)
    _tell_errors(app)
    _trajectory_routes(app, trajectories, submissions, directory, public_url)
    _service_routes(app, upstream, health)
    _document_proxied(app)
    return app


def _trajectory_routes(
    app: FastAPI,
    trajectories: Trajectories,
    submissions: Submissions,
    directory: Directory,
    public_url: str,
) -> None:
    @app.post("/init_trajectory")
    async def init_trajectory(request: Request) -> Initialised:
        """A fresh trajectory id. Put your prompt id in the place of `1` in `base_url`, then register."""
        trajectory = new_id()
        base = public_url.rstrip("/") or str(request.base_url).rstrip("/")
        return Initialised(trajectory_uid=trajectory, base_url=f"{base}/{trajectory}/1/v1")

    @app.post("/{trajectory_id}/{prompt_id}/v1/register_trajectory")
    async def register_trajectory(
        trajectory_id: TrajectoryId, prompt_id: PromptId, body: Registration | None = None
    ) -> Status:
        """Begin a rollout. Registering the same way again changes nothing."""
        body = body or Registration()
        await trajectories.register(
            trajectory_id, prompt_id, channel=body.channel, metadata=body.metadata or {}
        )
        return Status()

    @app.post("/{trajectory_id}/{prompt_id}/v1/complete_trajectory")
    async def complete_trajectory(
        trajectory_id: TrajectoryId, prompt_id: PromptId, body: Completion | None = None
    ) -> Status:
        """End a rollout, well or not, with its reward if it is known."""
        body = body or Completion()
        await trajectories.complete(
            trajectory_id, prompt_id, outcome=body.outcome, reason=body.reason, reward=body.reward
        )
        return Status()

    @app.post("/{trajectory_id}/{prompt_id}/v1/reward")
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

    @app.get("/{trajectory_id}/{prompt_id}/v1/trajectory")
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

    @app.post("/submit_steps")
    async def submit_steps(body: Submission, channel: Annotated[str, Query()] = "train") -> Accepted:
        """Hand in steps that the agent sampled itself. All are durable, or none is answered for."""
        return Accepted(accepted=await submissions.submit(body.steps, channel=channel))


def _service_routes(app: FastAPI, upstream: Upstream, health: Health) -> None:
    @app.get("/v1/models")
    @app.get("/{trajectory_id}/{prompt_id}/v1/models")
    async def models(request: Request) -> Response:
        """The engine's models."""
        listed = await upstream.models(authorization=request.headers.get("authorization", ""))
        return Response(listed, media_type="application/json")

    @app.get("/health")
    async def healthy() -> Response:
        """200 when calls can be captured, 503 with the reason otherwise."""
        able, details = health()
        return JSONResponse(details, status_code=200 if able else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _document_proxied(app: FastAPI) -> None:
    """The proxied routes do not pass through FastAPI, but belong into its description."""
    described = app.openapi()
    for dialect in DIALECTS.values():
        described["paths"][f"/{{trajectory_id}}/{{prompt_id}}/v1/{dialect.path}"] = {
            "post": {
                "summary": dialect.protocol.replace("_", " ").capitalize(),
                "description": dialect.__doc__,
                "parameters": [
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                    for name in ("trajectory_id", "prompt_id")
                ],
                "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                "responses": {
                    "200": {"description": "The answer; its step is durable. A stream where asked for."},
                    "4XX": {"description": "OpenAI's error object; the message says what to change."},
                    "5XX": {"description": "OpenAI's error object; the engine or the broker is away."},
                },
            }
        }


def _tell(failure: Failure) -> Response:
    headers = {name.decode(): value.decode() for name, value in failure.headers()}
    return JSONResponse(error_object(failure), status_code=failure.status, headers=headers)


def _tell_errors(app: FastAPI) -> None:
    async def known(_: Request, exc: Exception) -> Response:
        assert isinstance(exc, AgentWorldError)
        return _tell(Failure.of(exc))

    async def upstream_failed(_: Request, exc: Exception) -> Response:
        assert isinstance(exc, UpstreamFailed)
        return _tell(exc.failure)

    async def invalid(_: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        return _tell(_validation_failure(exc))

    async def http_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        codes = {404: "unknown_path", 405: "method_not_allowed"}
        messages = {
            404: f"there is nothing at {request.url.path}: calls go to "
            "/{trajectory_id}/{prompt_id}/v1/chat/completions, /docs lists the other routes",
            405: f"{request.method} does not work here: /docs lists the routes and their methods",
        }
        message = messages.get(exc.status_code, str(exc.detail))
        response = _tell(Failure(exc.status_code, codes.get(exc.status_code, "http_error"), message))
        response.headers.update(exc.headers or {})
        return response

    async def unforeseen(_: Request, exc: Exception) -> Response:
        return _tell(Failure.of(AgentWorldError(str(exc))))

    app.add_exception_handler(AgentWorldError, known)
    app.add_exception_handler(UpstreamFailed, upstream_failed)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unforeseen)


def _validation_failure(exc: RequestValidationError) -> Failure:
    first: dict[str, Any] = exc.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    if first["type"] == "json_invalid":
        return Failure(400, "invalid_json", f"the request body is not JSON: {first['ctx']['error']}")
    return Failure(422, "invalid_request", f"{where or 'body'}: {first['msg']}", param=where or None)
