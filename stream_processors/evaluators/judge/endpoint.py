"""One call of an OpenAI-compatible chat endpoint."""

from __future__ import annotations

import contextlib
from typing import Any

import aiohttp
import msgspec

from agentworld.contract.errors import Unavailable
from stream_processors.evaluators.evaluation import EvaluationFailed
from stream_processors.evaluators.judge.answer import answer_schema
from stream_processors.evaluators.kinds import Judge
from stream_processors.evaluators.secret import Secret

_MAX_REPLY_BYTES = 4 * 1024 * 1024
_SHOWN_CHARS = 200
_TRY_AGAIN = frozenset({408, 409, 425, 429})


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Body(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


class Reply(msgspec.Struct, frozen=True):
    """What the model said."""

    text: str
    model: str
    """As the endpoint names it."""
    prompt_tokens: int
    answer_tokens: int


class ChatEndpoint:
    """The endpoint of one `judge` table."""

    def __init__(self, table: Judge, session: aiohttp.ClientSession, secret: Secret) -> None:
        self._table = table
        self._session = session
        self._secret = secret
        self._url = table.url.rstrip("/") + "/chat/completions"

    async def ask(self, messages: list[dict[str, str]]) -> Reply:
        """The model's answer.

        Raises `Unavailable` where another try may help (429, 5xx, timeouts, lost connections, replies
        that are no chat completion), `EvaluationFailed` where it cannot. Neither text holds the key.
        """
        try:
            async with self._session.post(
                self._url,
                json=self._request(messages),
                headers=self._secret.headers,
                timeout=aiohttp.ClientTimeout(total=self._table.timeout_ms / 1000),
                allow_redirects=False,
            ) as response:
                body = await _bounded(response)
                retry_after = response.headers.get("Retry-After", "")
        except TimeoutError as exc:
            raise Unavailable(f"no answer within {self._table.timeout_ms} ms", retry_after_s=0) from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise Unavailable(
                self._secret.hide(f"{type(exc).__name__}: {exc}")[:_SHOWN_CHARS], retry_after_s=0
            ) from exc
        status = response.status
        if status == 200:
            return self._reply(body)
        said = self._secret.hide(body.decode(errors="replace")).strip()[:_SHOWN_CHARS]
        text = f"{self._url} answered {status}: {said}"
        if status in _TRY_AGAIN or status >= 500:
            raise Unavailable(text, retry_after_s=_seconds(retry_after))
        raise EvaluationFailed(text)

    def _request(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        table = self._table
        request: dict[str, Any] = {
            "model": table.model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": table.max_answer_tokens,
        }
        if table.response_format == "json_schema":
            schema = {"name": "evaluation", "schema": answer_schema(table), "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif table.response_format == "json_object":
            request["response_format"] = {"type": "json_object"}
        return request | table.request

    def _reply(self, body: bytes) -> Reply:
        try:
            parsed = msgspec.json.decode(body, type=_Body)
            text = parsed.choices[0].message.content or ""
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError) as exc:
            raise Unavailable(f"the reply is no chat completion: {exc}", retry_after_s=0) from exc
        usage = parsed.usage or _Usage()
        return Reply(
            text=self._secret.hide(text),
            model=self._secret.hide(parsed.model or self._table.model),
            prompt_tokens=usage.prompt_tokens or 0,
            answer_tokens=usage.completion_tokens or 0,
        )


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_REPLY_BYTES:
            raise aiohttp.ClientPayloadError(f"the reply has more than {_MAX_REPLY_BYTES} bytes")
    return body


def _seconds(retry_after: str) -> float:
    with contextlib.suppress(ValueError):
        return max(0.0, float(retry_after))
    return 0.0
