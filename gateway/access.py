"""Who may call, where auth is on: holders of an API key, and agents with a signed token in the path.

A token stands behind the trajectory id, `{trajectory_id}~{expires}~{mac}`, and opens that trajectory
alone. It is taken off before anything else sees the path, so nothing stores or logs it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence

from agentworld.contract.errors import ContractViolation, InvalidInput
from gateway.asgi import Scope
from gateway.callers import CALLER, TRUSTED, given_key

_MARK = "~"
_TOKEN = re.compile(r"~\d{1,15}~[A-Za-z0-9_-]{22}")
_LEAST_SECRET = 16
_OPEN = frozenset({"/health", "/docs", "/openapi.json", "/docs/oauth2-redirect", "/redoc"})
_TOKEN_IN_BODY = frozenset({"/submit_steps", "/generate"})
"""Routes whose bodies name trajectories; each name is opened there."""


def without_tokens(text: str) -> str:
    """`text` as it may be stored: clients put URLs into reasons and errors."""
    return _TOKEN.sub("~***", text) if _MARK in text else text


def _refused(message: str) -> InvalidInput:
    return InvalidInput(message, code="unauthorized", status=401)


class Access:
    """Checks keys and tokens. Off, it lets all in and signs nothing."""

    def __init__(
        self, secret: str, keys: Sequence[str], *, ttl_ms: int, clock: Callable[[], float] = time.time
    ) -> None:
        """Raises `ContractViolation` for settings that would be no protection, or let nobody in."""
        self.on = bool(secret)
        if self.on and len(secret) < _LEAST_SECRET:
            raise ContractViolation(
                f"AGENTWORLD_GATEWAY_AUTH_SECRET has {len(secret)} characters: use {_LEAST_SECRET} or more"
            )
        if self.on != bool(keys) or any(len(key) < _LEAST_SECRET for key in keys):
            raise ContractViolation(
                "AGENTWORLD_GATEWAY_AUTH_SECRET and AGENTWORLD_GATEWAY_AUTH_KEYS go together: set both (keys "
                f"of {_LEAST_SECRET} characters or more), or neither"
            )
        self._secret = secret.encode()
        self._keys = [key.encode() for key in keys]
        self._ttl_s = ttl_ms / 1000
        self._clock = clock

    def signed(self, trajectory_id: str) -> str:
        """The id with its token; as it is where auth is off."""
        if not self.on:
            return trajectory_id
        expires = str(int(self._clock() + self._ttl_s))
        return _MARK.join((trajectory_id, expires, self._mac(trajectory_id, expires)))

    def _mac(self, trajectory_id: str, expires: str) -> str:
        said = f"trajectory\0{trajectory_id}\0{expires}".encode("utf-8", "surrogatepass")
        digest = hmac.digest(self._secret, said, hashlib.sha256)[:16]
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def opened(self, uid: str, *, trusted: bool = False) -> str:
        """The bare id. Raises `InvalidInput` 401 for a token that is wrong, or missing unless `trusted`."""
        if not self.on:
            return uid
        bare, *token = uid.split(_MARK)
        if not token and trusted:
            return bare
        if len(token) != 2 or not hmac.compare_digest(
            self._mac(bare, token[0]).encode(), token[1].encode("utf-8", "surrogatepass")
        ):
            raise _refused(
                "the path has no valid token: take `base_url` as POST /init_trajectory gave it, or send a key"
            )
        if int(token[0]) < self._clock():
            raise _refused("the token in the path has expired: begin a trajectory with POST /init_trajectory")
        return bare

    def trusts(self, scope: Scope) -> bool:
        """Whether the request brings one of the API keys."""
        given = given_key(scope).encode("latin-1")
        return any(hmac.compare_digest(given, key) for key in self._keys)

    def admit(self, scope: Scope) -> None:
        """Let the request in, its path without token. Raises `InvalidInput` 401."""
        if not self.on:
            return
        path: str = scope["path"]
        trusted = self.trusts(scope)
        scope[TRUSTED] = trusted
        parts = path.split("/", 3)
        if len(parts) == 4 and (_MARK in parts[1] or parts[3].startswith("v1/")) and parts[1]:
            bare = self.opened(parts[1], trusted=trusted)
            if bare != parts[1]:
                scope["path"] = "/".join(("", bare, *parts[2:]))
                scope["raw_path"] = scope["path"].encode("utf-8", "surrogateescape")
            if not trusted:
                scope[CALLER] = bare
        elif not trusted and path not in _OPEN and path not in _TOKEN_IN_BODY:
            raise _refused("an API key is needed here: send it as `Authorization: Bearer …` or `x-api-key`")
