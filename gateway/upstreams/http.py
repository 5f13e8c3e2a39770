"""One engine over HTTP (aiohttp): pooled connections, no Nagle, failures in our words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from gateway.callers import without_secret
from gateway.engines.weights import UpdateFailed
from gateway.upstream_settings import EngineSettings
from gateway.upstreams.failed import UpstreamFailed, refused, told

_ENGINE_KEEPALIVE_S = 4.0
"""Below the 5 s after which uvicorn-based engines close an idle connection."""

_BODY_END_S = 1.0
"""Longest wait for the end of a body that holds no more."""


@dataclass(slots=True)
class HttpReply:
    """An engine's reply, its body not read yet."""

    response: aiohttp.ClientResponse
    engine: str
    is_stream: bool
    read_rest: Callable[[aiohttp.ClientResponse], None]
    """Takes a response over whose end is about to come, and keeps its connection."""
    told_all: bool = False
    """The engine has said all it has to say (`[DONE]`), whether or not the body ended yet."""

    async def read(self) -> bytes:
        """The whole body."""
        with told(self.engine):
            return await self.response.read()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body in parts, as they arrive."""
        content = self.response.content.iter_any()
        while True:
            with told(self.engine):
                try:
                    part = await anext(content)
                except StopAsyncIteration:
                    return
            yield part

    def end(self) -> None:
        """Keep the connection where the engine told all; else cancel the call at the engine."""
        if self.response.content.at_eof():
            self.response.release()
        elif self.told_all:
            self.read_rest(self.response)
        else:
            self.response.close()


class EngineHttp:
    """Requests to one engine. Needs a running event loop when created."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._name = settings.name
        self._base = settings.url.rstrip("/")
        self._root = self._base.removesuffix("/v1")
        self._key = settings.key()
        self._ending: set[asyncio.Task[None]] = set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=settings.connections, keepalive_timeout=_ENGINE_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=settings.connect_timeout_ms / 1000,
                sock_read=settings.timeout_ms / 1000,
            ),
            auto_decompress=True,
            read_bufsize=256 * 1024,
        )

    def _headers(self, authorization: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        elif authorization and self._settings.forward_authorization:
            headers["Authorization"] = authorization
        return headers

    async def begin(self, path: str, body: bytes, *, authorization: str) -> HttpReply:
        """Ask below `/v1`; the reply has begun with 200. The caller ends it. Raises `UpstreamFailed`."""
        with told(self._name):
            response = await self._post(self._base + path, body, self._headers(authorization))
        if response.status != 200:
            try:
                raise await refused(response, self._key)
            finally:
                response.close()
        return HttpReply(response, self._name, response.content_type == "text/event-stream", self._read_rest)

    def _read_rest(self, response: aiohttp.ClientResponse) -> None:
        task = asyncio.create_task(_to_the_end(response))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        try:
            return await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            # A pooled connection that the engine had just closed; nothing has reached the client yet.
            return await self._session.post(url, data=body, headers=headers, allow_redirects=False)

    async def post_beside(self, path: str, body: bytes, *, authorization: str) -> bytes:
        """Ask beside `/v1` (`/tokenize`). Raises `UpstreamFailed`."""
        with told(self._name):
            response = await self._post(self._root + path, body, self._headers(authorization))
            async with response:
                if response.status != 200:
                    raise await refused(response, self._key)
                return await response.read()

    async def models(self, *, authorization: str) -> bytes:
        """The engine's model list, as it is. Raises `UpstreamFailed`."""
        headers = self._headers(authorization)
        with told(self._name):
            async with self._session.get(f"{self._base}/models", headers=headers) as response:
                if response.status != 200:
                    raise await refused(response, self._key)
                return await response.read()

    async def is_well(self, *, timeout_ms: int) -> bool:
        """Whether the engine's health route answers 200 in time."""
        path = self._settings.health_path
        url = self._root + (path or "/health")
        if not path and self._settings.kind == "openai":
            url = f"{self._base}/models"
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        try:
            async with self._session.get(url, headers=self._headers(""), timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def post(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """A control route, as `EngineControl`."""
        data = msgspec.json.encode(body) if body is not None else b""
        return await self._control("POST", path, data)

    async def get(self, path: str) -> bytes:
        """A control route, as `EngineControl`."""
        return await self._control("GET", path, b"")

    async def _control(self, method: str, path: str, data: bytes) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._settings.update_timeout_ms / 1000)
        try:
            async with self._session.request(
                method, self._root + path, data=data or None, headers=self._headers(""), timeout=timeout
            ) as response:
                body = await response.read()
        except TimeoutError as exc:
            raise UpdateFailed(f"{path} was not answered in time: raise `update_timeout_ms`") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise UpdateFailed(f"{path} could not be asked: {type(exc).__name__}: {exc}") from exc
        if response.status != 200:
            said = without_secret(body[:500].decode(errors="replace"), self._key)
            raise UpdateFailed(f"{path} answered {response.status}: {said}")
        return body

    async def close(self) -> None:
        """Close all connections."""
        for task in self._ending:
            task.cancel()
        with contextlib.suppress(aiohttp.ClientError):
            await self._session.close()


async def _to_the_end(response: aiohttp.ClientResponse) -> None:
    """An engine ends a body in a packet of its own, behind `[DONE]`: without it the connection is lost."""
    try:
        async with asyncio.timeout(_BODY_END_S):
            while await response.content.readany():
                pass
        response.release()
    except (aiohttp.ClientError, OSError, TimeoutError):
        response.close()
    except BaseException:
        response.close()
        raise


__all__ = ["EngineHttp", "HttpReply", "UpstreamFailed"]
