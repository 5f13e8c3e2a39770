"""The engine over HTTP (aiohttp): pooled connections, no Nagle, failures in our words."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from agentworld.contract.events.trajectory_events import StepStatus
from gateway.failures import Failure
from gateway.settings import GatewaySettings

_ENGINE_KEEPALIVE_S = 4.0
"""Below the 5 s after which uvicorn-based engines close an idle connection."""


class UpstreamFailed(Exception):
    """The engine gave no usable answer: what the client is told, and how the step is marked."""

    def __init__(self, status: StepStatus, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status: StepStatus = status
        self.failure = failure


@dataclass(slots=True)
class UpstreamReply:
    """An engine's reply, its body not read yet."""

    response: aiohttp.ClientResponse
    is_stream: bool

    async def read(self) -> bytes:
        """The whole body."""
        with _told():
            return await self.response.read()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body in parts, as they arrive."""
        content = self.response.content.iter_any()
        while True:
            with _told():
                try:
                    part = await anext(content)
                except StopAsyncIteration:
                    return
            yield part


class Upstream:
    """One engine. Needs a running event loop when created."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.name = settings.upstream_name
        self._base = settings.upstream_url.rstrip("/")
        self._key = settings.upstream_api_key
        self._model = settings.upstream_model
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.upstream_connections, keepalive_timeout=_ENGINE_KEEPALIVE_S
            ),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=settings.upstream_connect_timeout_ms / 1000,
                sock_read=settings.upstream_timeout_ms / 1000,
            ),
            auto_decompress=True,
            read_bufsize=256 * 1024,
        )

    def _headers(self, authorization: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        elif authorization:
            headers["Authorization"] = authorization
        return headers

    @contextlib.asynccontextmanager
    async def chat(self, body: bytes, *, authorization: str) -> AsyncIterator[UpstreamReply]:
        """Ask for a completion. Leaving the block early cancels it at the engine.

        Raises `UpstreamFailed` for no connection, silence, or any status but 200.
        """
        with _told():
            response = await self._post(body, self._headers(authorization))
        try:
            if response.status != 200:
                raise await _refused(response)
            yield UpstreamReply(response, response.content_type == "text/event-stream")
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _post(self, body: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        url = f"{self._base}/chat/completions"
        try:
            return await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            # A pooled connection that the engine had just closed; nothing has reached the client yet.
            return await self._session.post(url, data=body, headers=headers, allow_redirects=False)

    async def models(self, *, authorization: str) -> bytes:
        """The engine's model list, as it is. Raises `UpstreamFailed`."""
        with _told():
            url = f"{self._base}/models"
            async with self._session.get(url, headers=self._headers(authorization)) as response:
                if response.status != 200:
                    raise await _refused(response)
                return await response.read()

    async def model_for(self, name: str, *, authorization: str) -> str:
        """The engine's name for the model a client asked for; `default` is its only one."""
        if name != "default":
            return name
        if not self._model:
            try:
                listed = msgspec.json.decode(
                    await self.models(authorization=authorization), type=_Models
                ).data
            except msgspec.MsgspecError:
                listed = []
            if len(listed) != 1:
                raise UpstreamFailed(
                    "failed",
                    Failure(
                        400,
                        "model_ambiguous",
                        "model `default` needs an engine with exactly one model, this one lists "
                        f"{len(listed)}: name one, or set AGENTWORLD_GATEWAY_UPSTREAM_MODEL",
                        param="model",
                    ),
                )
            self._model = listed[0].id
        return self._model

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
        message = (
            f"the engine cannot be reached ({type(exc).__name__}): start it, or set "
            "AGENTWORLD_GATEWAY_UPSTREAM_URL"
        )
        raise UpstreamFailed("failed", Failure(502, "upstream_unreachable", message)) from exc
    except TimeoutError as exc:
        message = (
            "the engine was silent for too long: try again, or raise AGENTWORLD_GATEWAY_UPSTREAM_TIMEOUT_MS"
        )
        raise UpstreamFailed("timed_out", Failure(504, "upstream_timeout", message)) from exc
    except (aiohttp.ClientError, OSError) as exc:
        message = f"the engine broke off its answer ({type(exc).__name__}): try again"
        raise UpstreamFailed("failed", Failure(502, "upstream_broke_off", message)) from exc


async def _refused(response: aiohttp.ClientResponse) -> UpstreamFailed:
    """The engine's own error, in OpenAI's shape, with its status and Retry-After."""
    body = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        body = await response.read()
    return UpstreamFailed("failed", _error_of(response, body))


def _error_of(response: aiohttp.ClientResponse, body: bytes) -> Failure:
    status = response.status if response.status >= 400 else 502
    error: dict[str, Any] = {}
    with contextlib.suppress(msgspec.MsgspecError):
        parsed = msgspec.json.decode(body)
        if isinstance(parsed, dict):
            error = parsed["error"] if isinstance(parsed.get("error"), dict) else parsed
    message = error.get("message") or error.get("detail") or f"the engine answered {response.status}"
    param = error.get("param")
    return Failure(
        status=status,
        code=str(error.get("code") or "upstream_error"),
        message=str(message)[:2000],
        type=str(error.get("type") or ""),
        param=param if isinstance(param, str) else None,
        retry_after=response.headers.get("Retry-After"),
    )
