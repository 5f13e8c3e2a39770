"""Errors of the control routes: an error object that says what to do, in the shape the client reads."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from agentworld.contract.errors import AgentWorldError
from gateway.dialects.messages import anthropic_error
from gateway.failures import Failure, error_body, internal_failure
from gateway.rewarding import RewardFailed
from gateway.upstream import UpstreamFailed

_CODES = {404: "unknown_path", 405: "method_not_allowed"}


def tell_errors(app: FastAPI) -> None:
    """Add the handlers."""

    async def known(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, AgentWorldError)
        return _tell(request, Failure.of(exc))

    async def reward_failed(request: Request, exc: Exception) -> Response:
        return _tell(request, Failure(502, "reward_function_failed", str(exc)))

    async def upstream_failed(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, UpstreamFailed)
        return _tell(request, exc.failure)

    async def invalid(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        return _tell(request, _validation_failure(exc))

    async def http_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        code = _CODES.get(exc.status_code, "http_error")
        response = _tell(request, Failure(exc.status_code, code, _http_message(request, exc)))
        response.headers.update(exc.headers or {})
        return response

    async def unforeseen(request: Request, exc: Exception) -> Response:
        return _tell(request, internal_failure(exc))

    app.add_exception_handler(RewardFailed, reward_failed)
    app.add_exception_handler(AgentWorldError, known)
    app.add_exception_handler(UpstreamFailed, upstream_failed)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unforeseen)


def _tell(request: Request, failure: Failure) -> Response:
    headers = {name.decode(): value.decode() for name, value in failure.headers()}
    anthropic = "anthropic-version" in request.headers or "/v1/messages" in request.url.path
    body = anthropic_error(failure) if anthropic else error_body(failure)
    return Response(body, failure.status, headers, media_type="application/json")


def _http_message(request: Request, exc: HTTPException) -> str:
    if exc.status_code == 404:
        return (
            f"there is nothing at {request.url.path[:200]!r}: calls go to "
            "/{trajectory_id}/{prompt_id}/v1/chat/completions, /docs lists the other routes"
        )
    if exc.status_code == 405:
        return f"{request.method} does not work here: /docs lists the routes and their methods"
    return str(exc.detail)


def _validation_failure(exc: RequestValidationError) -> Failure:
    first: dict[str, Any] = exc.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    if first["type"] == "json_invalid":
        return Failure(400, "invalid_json", f"the request body is not JSON: {first['ctx']['error']}")
    message = f"{where or 'body'}: {first['msg']}".encode(errors="replace").decode()
    return Failure(422, "invalid_request", message, param=where or None)
