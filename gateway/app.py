"""The gateway as an ASGI application: its parts put together, and who gets which request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import FastAPI

from agentworld.contract.errors import InvalidInput
from agentworld.platform.log import Publisher
from gateway.access import Access
from gateway.admission import Admission
from gateway.asgi import ClientGone, Message, Receive, Scope, Send, read_body, send_failure
from gateway.client_reply import Pace
from gateway.control import control_app
from gateway.counting import Counting
from gateway.dialects import Dialect, dialects
from gateway.dialects.messages import COUNT_TOKENS_PATH
from gateway.directory import Directory
from gateway.failures import Failure, internal_failure
from gateway.heads import head_bytes, is_upgrade, refuse_upgrade, too_large_head
from gateway.leaves import LeafCache
from gateway.online import Conversations, Online
from gateway.policies import PolicyVersions
from gateway.proxy import Bounds, Proxy
from gateway.restore import TurnMemory
from gateway.restoring import Restoring
from gateway.rewarding import load_reward_function
from gateway.settings import GatewaySettings
from gateway.submitted import Submissions
from gateway.trajectories import Trajectories
from gateway.upstream import Upstream


def _healthy() -> tuple[bool, dict[str, object]]:
    return True, {"status": "ok"}


def _endless_room() -> None:
    return


def create_app(
    settings: GatewaySettings,
    *,
    publisher: Publisher,
    directory: Directory,
    upstream: Upstream,
    policies: PolicyVersions | None = None,
    health: Callable[[], tuple[bool, dict[str, object]]] = _healthy,
    check_room: Callable[[], None] = _endless_room,
) -> Gateway:
    """The application over its edges, which the caller starts and closes.

    `check_room` raises `Unavailable` while no step could be made durable: calls are then refused unasked.

    Raises `ContractViolation` where the reward function in the settings cannot be imported.
    """
    source = f"gateway/{settings.instance}"
    leaves = LeafCache(per_trajectory=settings.leaves_per_trajectory, max_bytes=settings.leaves_max_bytes)
    trajectories = Trajectories(
        publisher=publisher,
        directory=directory,
        source=source,
        default_run_id=settings.default_run_id,
        default_rollouts=settings.default_rollouts,
        default_raw_content=settings.raw_content,
    )
    turns = TurnMemory(
        per_trajectory=settings.restore_turns_per_trajectory, max_bytes=settings.restore_max_bytes
    )
    restoring = Restoring(turns, on=settings.restore)
    online = Online(
        trajectories=trajectories,
        directory=directory,
        conversations=Conversations(max_ends=settings.online_max_conversations),
        channel=settings.online_channel,
    )
    access = Access(settings.auth_secret, settings.auth_keys, ttl_ms=settings.auth_token_ttl_ms)
    spoken = dialects(inner_system=settings.inner_system)
    return Gateway(
        spoken,
        proxy=Proxy(
            publisher=publisher,
            directory=directory,
            upstream=upstream,
            policies=policies or PolicyVersions(),
            leaves=leaves,
            restoring=restoring,
            online=online if settings.online else None,
            admission=Admission(settings.max_calls_per_key),
            check_room=check_room,
            bounds=_bounds(settings),
            raw_content=settings.raw_content,
            access=access,
            source=source,
        ),
        counting=Counting(
            spoken["messages"],
            upstream=upstream,
            restoring=restoring,
            max_body_bytes=settings.max_body_bytes,
        ),
        control=control_app(
            trajectories=trajectories,
            submissions=Submissions(
                publisher=publisher,
                directory=directory,
                trajectories=trajectories,
                leaves=leaves,
                source=source,
            ),
            directory=directory,
            upstream=upstream,
            reward_function=load_reward_function(settings.reward_function),
            health=health,
            public_url=settings.public_url,
            access=access,
        ),
        access=access,
        max_body_bytes=settings.max_body_bytes,
        max_header_bytes=settings.max_header_bytes,
    )


def _bounds(settings: GatewaySettings) -> Bounds:
    keepalive_ms = settings.keepalive_ms
    pace = Pace(
        first_keepalive_s=(settings.first_keepalive_ms or keepalive_ms) / 1000,
        keepalive_s=keepalive_ms / 1000,
        stall_s=settings.client_stall_ms / 1000,
    )
    return Bounds(settings.max_body_bytes, settings.max_answer_bytes, pace)


class Gateway:
    """Dispatches by path: proxied calls go straight to `Proxy`, all else to FastAPI."""

    def __init__(
        self,
        spoken: Mapping[str, Dialect],
        *,
        proxy: Proxy,
        counting: Counting,
        control: FastAPI,
        access: Access,
        max_body_bytes: int,
        max_header_bytes: int,
    ) -> None:
        self._spoken = spoken
        self._proxy = proxy
        self._counting = counting
        self.control = control
        self._access = access
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes

    def stop_calls(self) -> None:
        """End the calls under way, which the gateway cannot wait for; they are captured all the same."""
        self._proxy.stop_calls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self.control(scope, receive, send)
            return
        if is_upgrade(scope):
            await refuse_upgrade(scope, receive, send)
            return
        refused: InvalidInput | None = None
        try:
            self._access.admit(scope)
        except InvalidInput as exc:
            refused = exc
        ids, rest = _place(scope["path"])
        dialect = self._spoken.get(rest)
        if dialect is None and rest == COUNT_TOKENS_PATH:
            dialect = self._spoken["messages"]
        if (size := head_bytes(scope)) > self._max_header_bytes:
            failure = too_large_head(size, self._max_header_bytes)
            await send_failure(send, failure, dialect.error(failure) if dialect else None)
        elif refused is not None:
            failure = Failure.of(refused)
            headers = [(b"www-authenticate", b"Bearer")]
            await send_failure(send, failure, dialect.error(failure) if dialect else None, headers=headers)
        elif dialect is None:
            await self._control(scope, receive, send)
        elif scope["method"] != "POST":
            message = f"{scope['method']} does not work here: send POST"
            failure = Failure(405, "method_not_allowed", message)
            await send_failure(send, failure, dialect.error(failure), headers=[(b"allow", b"POST")])
        else:
            await self._proxied(dialect, rest, ids, scope, receive, send)

    async def _proxied(
        self,
        dialect: Dialect,
        rest: str,
        ids: tuple[str, str] | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        began = False

        async def watched(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            if rest == COUNT_TOKENS_PATH:
                await self._counting.serve(ids, scope, receive, watched)
            else:
                await self._proxy.serve(dialect, ids, scope, receive, watched)
        except Exception as exc:
            failure = internal_failure(exc)
            if not began:
                await send_failure(send, failure, dialect.error(failure))

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

        dropped = {b"content-type", b"content-encoding", b"content-length"}
        headers = [(k, v) for k, v in scope["headers"] if k not in dropped]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.control({**scope, "headers": headers}, replay, send)


def _place(path: str) -> tuple[tuple[str, str] | None, str]:
    """Ids in the path, and what stands behind `/v1/`; `generate` stands alone in Claw-R1."""
    if path.startswith("/v1/"):
        return None, path[4:]
    if path == "/generate":
        return None, "generate"
    parts = path.split("/", 4)
    if len(parts) == 5 and parts[3] == "v1":
        return (parts[1], parts[2]), parts[4]
    return None, ""
