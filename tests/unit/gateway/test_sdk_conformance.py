"""The real SDKs, strict: replies and events are of the types they claim, errors of the SDK's own classes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web

from agentworld.contract.errors import Unavailable
from agentworld.platform.log import OutRecord, Place
from agentworld.platform.memory import InMemoryLog
from tests.unit.gateway.harness import running_gateway
from tests.unit.gateway.streams.engine_streams import Turn
from tests.unit.gateway.streams.stand_in import standing_in

TURN = Turn(
    reasoning=("First", " this."),
    text=("Both", " → ", "then."),
    calls=(("add", ('{"a": 1', ', "b": 2}')), ("add", ('{"a": 3}',))),
)
TEXT = Turn(text=("One", " → ", "two."))
HI: Any = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: dict[str, Any] = {
    "chat": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}],
    "responses": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}],
    "messages": [{"name": "add", "input_schema": SCHEMA}],
}
Sdk = openai.AsyncOpenAI | anthropic.AsyncAnthropic
Ask = Callable[[Any, bool], Awaitable[Any]]


class PatientOpenAI(openai.AsyncOpenAI):
    """Notes how long it would wait before each retry, and does not."""

    waits: list[float]

    def _calculate_retry_timeout(self, *given: Any, **named: Any) -> float:
        self.waits.append(super()._calculate_retry_timeout(*given, **named))
        return 0


class PatientAnthropic(anthropic.AsyncAnthropic):
    waits: list[float]

    def _calculate_retry_timeout(self, *given: Any, **named: Any) -> float:
        self.waits.append(super()._calculate_retry_timeout(*given, **named))
        return 0


async def chat(client: openai.AsyncOpenAI, stream: bool, **fields: Any) -> Any:
    return await client.chat.completions.create(model="default", messages=HI, stream=stream, **fields)


async def responses(client: openai.AsyncOpenAI, stream: bool, **fields: Any) -> Any:
    return await client.responses.create(model="default", input="hi", stream=stream, **fields)


async def completions(client: openai.AsyncOpenAI, stream: bool, **fields: Any) -> Any:
    return await client.completions.create(model="default", prompt="hi", stream=stream, **fields)


async def messages(client: anthropic.AsyncAnthropic, stream: bool, **fields: Any) -> Any:
    fields = {"max_tokens": 99, **fields}
    return await client.messages.create(model="default", messages=HI, stream=stream, **fields)


async def count_tokens(client: anthropic.AsyncAnthropic, stream: bool, **fields: Any) -> Any:
    return await client.messages.count_tokens(model="default", messages=HI, **fields)


ASKS: dict[str, Ask] = {
    "chat": chat,
    "responses": responses,
    "completions": completions,
    "messages": messages,
}
EVERY = pytest.mark.parametrize("name", ASKS)
STREAMED = pytest.mark.parametrize("stream", [False, True])


@contextlib.asynccontextmanager
async def sdk(url: str, name: str, *, max_retries: int = 0, stream: bool = False) -> AsyncIterator[Any]:
    options: dict[str, Any] = {
        "api_key": "sk-of-the-tests",
        "max_retries": max_retries,
        # OpenAI's type of a streamed text completion has no place for the null that OpenAI streams, too,
        # as `finish_reason` before the end.
        "_strict_response_validation": not (stream and name == "completions"),
    }
    kind = PatientAnthropic if name in {"messages", "count_tokens"} else PatientOpenAI
    base = url if kind is PatientAnthropic else f"{url}/v1"
    async with kind(base_url=base, **options) as client:
        client.waits = []
        yield client


async def all_of(reply: Any, stream: bool) -> list[Any]:
    return [event async for event in reply] if stream else [reply]


@STREAMED
@EVERY
async def test_every_reply_and_event_is_of_the_type_that_the_sdk_knows(name: str, stream: bool) -> None:
    turn = TEXT if name == "completions" else TURN
    fields = {"tools": TOOLS[name]} if name in TOOLS else {}
    if name in {"chat", "completions"}:
        fields |= {"n": 2, "logprobs": True if name == "chat" else 1}
    async with (
        standing_in(turn) as engine,
        running_gateway(engine) as gateway,
        sdk(f"{gateway.url}/t1/p1", name, stream=stream) as client,
    ):
        await gateway.register()
        parts = await all_of(await ASKS[name](client, stream, **fields), stream)
        steps = gateway.steps
    assert len(steps) == fields.get("n", 1)
    assert all((step.status, step.integrity) == ("ok", []) for step in steps)
    for part in parts:
        # Strict parsing lets fields through that the type lacks; none of them may be the engine's.
        told = part.model_dump_json()
        assert "token_ids" not in told
        assert "weight_version" not in told
    if stream:
        kinds = {type(part) for part in parts}
        assert len(kinds) == 1 or name in {"responses", "messages"}
        assert not any(kind.__name__ in {"dict", "BaseModel"} for kind in kinds)


class FullSpool:
    """Takes registrations, and no step."""

    def __init__(self) -> None:
        self._log = InMemoryLog()

    async def publish(self, record: OutRecord) -> Place | None:
        if dict(record.headers)["type"] == b"step_captured":
            no_room()
        return self._log.append(record)


def no_room() -> None:
    raise Unavailable("the broker is away and the spool is full", retry_after_s=7)


def refusing(status: int, **headers: str) -> Callable[[web.Request], web.Response | None]:
    def refuse(_: web.Request) -> web.Response:
        said = {"error": {"message": "so says the engine", "code": "its_code"}}
        return web.json_response(said, status=status, headers=headers)

    return refuse


@contextlib.asynccontextmanager
async def failing(status: int, name: str, *, max_retries: int = 0) -> AsyncIterator[Any]:
    """A client whose calls fail with `status` before they begin, by the engine's word or the gateway's."""
    from_engine = refusing(status, **{"Retry-After": "9"}) if status in {401, 429} else None
    options: dict[str, Any] = {"max_body_bytes": 5_000}
    if status == 503:
        options["check_room"] = no_room
    async with (
        standing_in(TEXT, refuse=from_engine) as engine,
        running_gateway(engine, **options) as gateway,
        sdk(
            f"{gateway.url}/{'other' if status == 404 else 't1'}/p1", name, max_retries=max_retries
        ) as client,
    ):
        await gateway.register()
        yield client


BAD: dict[str, dict[str, Any]] = {
    "chat": {"extra_body": {"n": 0}},
    "responses": {"extra_body": {"previous_response_id": "resp_1"}},
    "completions": {"extra_body": {"echo": True}},
    "messages": {"tool_choice": {"type": "tool", "name": "missing"}},
}
LARGE: dict[str, Any] = {"extra_body": {"padding": "x" * 6_000}}
NAMED = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    413: "ContentTooLargeError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
OPENAIS = NAMED | {413: "APIStatusError", 503: "InternalServerError"}
"""OpenAI's SDK has no class of its own for these two."""


@STREAMED
@EVERY
@pytest.mark.parametrize("status", NAMED)
async def test_every_error_is_of_the_sdks_own_class(status: int, name: str, stream: bool) -> None:
    fields = BAD[name] if status == 400 else LARGE if status == 413 else {}
    module: Any = anthropic if name == "messages" else openai
    async with failing(status, name) as client:
        with pytest.raises(module.APIStatusError) as caught:
            await ASKS[name](client, stream, **fields)
    error = caught.value
    assert type(error).__name__ == (NAMED if name == "messages" else OPENAIS)[status]
    assert error.status_code == status
    if status in {401, 429}:
        assert "so says the engine" in error.message
    if status in {429, 503}:
        assert error.response.headers["retry-after"] == ("9" if status == 429 else "7")
    if name != "messages":
        assert error.code
    else:
        assert error.body["error"]["message"]


@EVERY
async def test_a_step_that_cannot_be_stored_fails_the_stream_in_the_sdks_way(name: str) -> None:
    async with (
        standing_in(TEXT) as engine,
        running_gateway(engine, publisher=FullSpool()) as gateway,
        sdk(f"{gateway.url}/t1/p1", name, stream=True) as client,
    ):
        await gateway.register()
        stream = await ASKS[name](client, True)
        if name == "responses":
            events = await all_of(stream, True)
            assert events[-1].type == "response.failed"
            assert events[-1].response.error.code == "server_error"
            return
        with pytest.raises(openai.APIError if name != "messages" else anthropic.APIError, match="spool"):
            await all_of(stream, True)


@STREAMED
@EVERY
@pytest.mark.parametrize("status", [429, 503])
async def test_retries_wait_as_long_as_retry_after_says(status: int, name: str, stream: bool) -> None:
    async with failing(status, name, max_retries=2) as client:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            await ASKS[name](client, stream)
        assert client.waits == [9.0 if status == 429 else 7.0] * 2


@pytest.mark.parametrize("status", [400, 413])
async def test_counting_tokens_fails_in_anthropics_way(status: int) -> None:
    fields = BAD["messages"] if status == 400 else LARGE
    async with failing(status, "count_tokens") as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await count_tokens(client, False, **fields)
    assert type(caught.value).__name__ == NAMED[status]
