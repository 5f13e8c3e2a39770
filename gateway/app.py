"""The gateway as an ASGI application: proxied calls go straight to `Proxy`, the rest to FastAPI."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from agentworld.contract.errors import InvalidInput
from agentworld.platform.log import Publisher
from gateway.asgi import ClientGone, Message, Receive, Scope, Send, read_body, send_failure
from gateway.control import control_app
from gateway.dialects import DIALECTS
from gateway.directory import Directory
from gateway.failures import Failure
from gateway.leaves import LeafCache
from gateway.policies import PolicyVersions
from gateway.proxy import Proxy
from gateway.settings import GatewaySettings
from gateway.submitted import Submissions
from gateway.trajectories import Trajectories
from gateway.upstream import Upstream


def _healthy() -> tuple[bool, dict[str, object]]:
    return True, {"status": "ok"}


def create_app(
    settings: GatewaySettings,
    *,
    publisher: Publisher,
    directory: Directory,
    upstream: Upstream,
    policies: PolicyVersions | None = None,
    health: Callable[[], tuple[bool, dict[str, object]]] = _healthy,
) -> Gateway:
    """The application over its edges, which the caller starts and closes."""
    source = f"gateway/{settings.instance}"
    leaves = LeafCache(per_trajectory=settings.leaves_per_trajectory, max_bytes=settings.leaves_max_bytes)
    trajectories = Trajectories(
        publisher=publisher,
        directory=directory,
        source=source,
        default_run_id=settings.default_run_id,
        default_rollouts=settings.default_rollouts,
    )
    submissions = Submissions(
        publisher=publisher, directory=directory, trajectories=trajectories, leaves=leaves, source=source
    )
    control = control_app(
        trajectories=trajectories,
        submissions=submissions,
        directory=directory,
        upstream=upstream,
        health=health,
        public_url=settings.public_url,
    )
    proxy = Proxy(
        publisher=publisher,
        directory=directory,
        upstream=upstream,
        policies=policies or PolicyVersions(),
        leaves=leaves,
        source=source,
        max_body_bytes=settings.max_body_bytes,
    )
    return Gateway(proxy, control, max_body_bytes=settings.max_body_bytes)


class Gateway:
    """Dispatches by path."""

    def __init__(self, proxy: Proxy, control: FastAPI, *, max_body_bytes: int) -> None:
        self._proxy = proxy
        self.control = control
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self.control(scope, receive, send)
            return
        parts = scope["path"].split("/", 4)
        dialect = DIALECTS.get(parts[4]) if len(parts) == 5 and parts[3] == "v1" else None
        if dialect is None:
            await self._control(scope, receive, send)
        elif scope["method"] == "POST":
            await self._proxy.serve(dialect, parts[1], parts[2], scope, receive, send)
        else:
            message = f"{scope['method']} does not work here: send POST"
            failure = Failure(405, "method_not_allowed", message)
            await send_failure(send, failure, dialect.error(failure), headers=[(b"allow", b"POST")])

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Bounded body, always read as JSON, to FastAPI."""
        if scope["method"] not in {"POST", "PUT", "PATCH"}:
            await self.control(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, max_bytes=self._max_body_bytes)
        except InvalidInput as exc:
            await send_failure(send, Failure.of(exc))
            return
        except ClientGone:
            return
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        headers = [(k, v) for k, v in scope["headers"] if k != b"content-type"]
        json_scope = {**scope, "headers": [*headers, (b"content-type", b"application/json")]}
        await self.control(json_scope, replay, send)
