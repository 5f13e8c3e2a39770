"""The SDK: tells the gateway when a rollout begins, what it earned, and how it ended.

    client = AgentWorld("http://127.0.0.1:8700")
    with client.trajectory(prompt_id="task-7", run_id="nightly", rollouts=4) as t:
        agent = OpenAI(base_url=t.base_url, api_key="unused")
        ...
        t.complete("succeeded", reward=1.0)

Leaving the block completes the trajectory: `succeeded`, or `failed` with the exception as the
reason, which is raised again. Only the standard library is used; the agent's own calls do not
pass through here. Calls are repeated while the gateway is away: registering and completing twice
is the same as once.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

from agentworld.contract.errors import AgentWorldError, InvalidInput, Unavailable
from agentworld.contract.events import Outcome
from agentworld.contract.ids import check_name

DEFAULT_URL = "http://127.0.0.1:8700"
_AWAY = {502, 503, 504}
_MAX_PAUSE_S = 2.0


class AgentWorld:
    """A gateway. Safe to share between threads; holds no connection."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
    ) -> None:
        """`timeout_s` bounds one call, `patience_s` all its repetitions while the gateway is away."""
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise InvalidInput(
                f"base_url {base_url!r} is not an HTTP address: use one such as {DEFAULT_URL}",
                code="invalid_base_url",
            )
        self._base_url = base_url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json", "User-Agent": "agentworld-client"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._patience_s = patience_s

    def trajectory(
        self,
        *,
        prompt_id: str,
        run_id: str | None = None,
        channel: str = "train",
        rollouts: int | None = None,
        rollout_index: int | None = None,
        round: int = 0,
        policy: str | None = None,
        replaces: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        """One rollout of the task `prompt_id`; enter it to register it.

        `rollouts` is how many trajectories its group waits for; what is not given is the gateway's
        configured default. `replaces` is the trajectory id of a lost rollout (`RolloutWanted`). Raises
        `InvalidInput` on a name that cannot stand in a path.
        """
        fields = {
            "run_id": run_id,
            "n_rollouts": rollouts,
            "rollout_index": rollout_index,
            "round": round,
            "policy": policy,
            "replaces_trajectory_id": replaces,
        }
        registration = {
            "channel": check_name(channel, "channel"),
            "metadata": dict(metadata or {}) | {k: v for k, v in fields.items() if v is not None},
        }
        return Trajectory(self, check_name(prompt_id, "prompt id"), registration)

    def post(self, url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """POST JSON to a path of the gateway, or to a whole URL; the JSON answer.

        Raises `InvalidInput` where the gateway refuses (4xx), `Unavailable` when patience ends.
        """
        target = url if "://" in url else self._base_url + url
        data = json.dumps(body).encode() if body is not None else b""
        deadline = time.monotonic() + self._patience_s
        pause_s = 0.1
        while True:
            try:
                return self._post_once(target, data)
            except Unavailable as exc:
                pause_s = min(max(pause_s, exc.retry_after_s), _MAX_PAUSE_S)
                if time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s *= 2

    def _post_once(self, url: str, data: bytes) -> dict[str, Any]:
        request = urllib.request.Request(url, data=data, headers=self._headers, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:  # noqa: S310
                answer = json.loads(reply.read() or b"{}")
        except urllib.error.HTTPError as exc:
            raise _refusal(exc) from exc
        except (OSError, http.client.HTTPException) as exc:
            reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
            raise Unavailable(
                f"no gateway answers at {url}: {reason}. Is base_url right, and does it run?",
                retry_after_s=0.1,
            ) from exc
        except ValueError as exc:
            raise InvalidInput(
                f"{url} did not answer with JSON: is base_url an AgentWorld gateway?", code="not_a_gateway"
            ) from exc
        if not isinstance(answer, dict):
            raise InvalidInput(f"{url} did not answer with a JSON object", code="not_a_gateway")
        return answer


class Trajectory:
    """A rollout in progress."""

    trajectory_id: str
    """Its id, once entered."""
    base_url: str
    """The model endpoint of this rollout, for an OpenAI client; once entered."""

    def __init__(self, client: AgentWorld, prompt_id: str, registration: Mapping[str, Any]) -> None:
        self._client = client
        self._registration = registration
        self._completed = False
        self.prompt_id = prompt_id

    def __enter__(self) -> Self:
        begun = self._client.post("/init_trajectory")
        try:
            # Behind a ~ follows the token of a gateway with auth: part of the path, not of the name.
            self.trajectory_id = str(begun["trajectory_uid"]).partition("~")[0]
            offered = str(begun["base_url"])
        except KeyError as exc:
            raise InvalidInput(
                f"init_trajectory answered without {exc}: is base_url an AgentWorld gateway?",
                code="not_a_gateway",
            ) from exc
        parts = urlsplit(offered)
        # The gateway offers …/{trajectory}/1/v1; the last part but one is ours to choose.
        path = f"{parts.path.rsplit('/', 2)[0]}/{quote(self.prompt_id, safe=':@=+')}/v1"
        self.base_url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self._client.post(f"{self.base_url}/register_trajectory", self._registration)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._completed:
            return
        if error is None:
            self.complete()
            return
        try:
            self.fail(f"{type(error).__name__}: {error}")
        except AgentWorldError as exc:
            error.add_note(f"trajectory {self.trajectory_id} could not be completed either: {exc}")

    def reward(
        self,
        value: float,
        *,
        name: str | None = None,
        step_id: str | None = None,
        version: int | None = None,
        given_by: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Assign a reward, to the whole trajectory or to one step; before or after completion.

        A higher `version` of the same name and step replaces the lower.
        """
        fields = {
            "name": name,
            "step_id": step_id,
            "version": version,
            "given_by": given_by,
            "extra": extra,
        }
        body = {"value": float(value)} | {k: v for k, v in fields.items() if v is not None}
        self._client.post(f"{self.base_url}/reward", body)

    def complete(
        self, outcome: Outcome = "succeeded", *, reward: float | None = None, reason: str = ""
    ) -> None:
        """Say that the rollout is over, and how it went."""
        body: dict[str, Any] = {"channel": self._registration["channel"], "outcome": outcome}
        if reward is not None:
            body["reward"] = float(reward)
        if reason:
            body["reason"] = reason
        self._client.post(f"{self.base_url}/complete_trajectory", body)
        self._completed = True

    def fail(self, reason: str, *, reward: float | None = None) -> None:
        """Complete with outcome `failed`: it still counts as one of its group's rollouts."""
        self.complete("failed", reward=reward, reason=reason)


class AsyncAgentWorld:
    """`AgentWorld` for asyncio."""

    def __init__(self, base_url: str = DEFAULT_URL, **options: Any) -> None:
        """The same options as `AgentWorld`."""
        self._client = AgentWorld(base_url, **options)

    def trajectory(self, *, prompt_id: str, **options: Any) -> AsyncTrajectory:
        """The same as `AgentWorld.trajectory`, for `async with`."""
        return AsyncTrajectory(self._client.trajectory(prompt_id=prompt_id, **options))


class AsyncTrajectory:
    """`Trajectory` for asyncio: its calls run in threads."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self.prompt_id = trajectory.prompt_id

    @property
    def trajectory_id(self) -> str:
        """Its id, once entered."""
        return self._trajectory.trajectory_id

    @property
    def base_url(self) -> str:
        """The model endpoint of this rollout, once entered."""
        return self._trajectory.base_url

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._trajectory.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._trajectory.__exit__, kind, error, trace)

    async def reward(self, value: float, **options: Any) -> None:
        """As `Trajectory.reward`."""
        await asyncio.to_thread(self._trajectory.reward, value, **options)

    async def complete(
        self, outcome: Outcome = "succeeded", *, reward: float | None = None, reason: str = ""
    ) -> None:
        """As `Trajectory.complete`."""
        await asyncio.to_thread(self._trajectory.complete, outcome, reward=reward, reason=reason)

    async def fail(self, reason: str, *, reward: float | None = None) -> None:
        """As `Trajectory.fail`."""
        await asyncio.to_thread(self._trajectory.fail, reason, reward=reward)


def _refusal(error: urllib.error.HTTPError) -> AgentWorldError:
    raw = error.read()
    code, message = "refused", raw.decode("utf-8", "replace")[:500] or str(error.reason)
    try:
        answer = json.loads(raw)
        detail = answer.get("error", answer.get("detail", answer))
        if isinstance(detail, dict):
            code, message = str(detail.get("code") or code), str(detail.get("message") or message)
        else:
            message = str(detail)
    except (ValueError, AttributeError):
        pass
    path = re.sub(r"~[^/]*", "", urlsplit(error.url or "").path)
    said = f"{path}: {error.code}: {message}"
    if error.code in _AWAY:
        try:
            retry_after_s = float(error.headers.get("Retry-After") or 0.5)
        except ValueError:
            retry_after_s = 0.5
        return Unavailable(said, retry_after_s=retry_after_s)
    return InvalidInput(said, code=code, status=error.code)
