"""OpenAI text completions. The prompt is a text or token ids; there is no conversation."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import TokenId
from gateway.canonical import ChatCall
from gateway.dialects.openai_stream import ENGINE_FIELDS, OpenAiStream
from gateway.engine import EngineObject
from gateway.failures import Failure, error_body

_NULL = msgspec.Raw(b"null")
_NOT_SAMPLING = frozenset({"prompt", "model", "stream", "stream_options"})
_CLIENT_ID_FIELDS = ("prompt_cache_key", "user", "conversation_id", "session_id")
_REFUSED = ("suffix", "best_of")

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_prompt = msgspec.json.Decoder(str | list[Any])
_ids = msgspec.json.Decoder(list[TokenId])


def invalid(message: str) -> InvalidInput:
    """A 400 that names the field."""
    return InvalidInput(message, code="invalid_request", status=400)


def read(fields: dict[str, msgspec.Raw], name: str, expected: Any, what: str) -> Any:
    """A field, or None where it is absent or null. Raises `InvalidInput`."""
    raw = fields.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=expected)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise invalid(f"`{name}` must be {what}") from exc


def decoded(body: bytes) -> dict[str, msgspec.Raw]:
    """The body's fields. Raises `InvalidInput`."""
    try:
        if not body.isascii():
            body.decode()
        return _fields.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise InvalidInput(
            f"the request body is not a JSON object: {exc}", code="invalid_json", status=400
        ) from exc


class Completions:
    """OpenAI text completions, streamed or not. Unknown fields travel to the engine."""

    protocol: Literal["completions"] = "completions"
    path = "completions"

    def parse(self, body: bytes) -> ChatCall:
        """Read the fields the gateway must know; the rest stays as it came."""
        fields = decoded(body)
        for name in _REFUSED:
            if bytes(fields.get(name, _NULL)) not in {b"null", b"1"}:
                raise invalid(f"`{name}` has no place in a captured step: leave it out")
        fields["prompt"], prompt_ids = _one_prompt(fields)
        logprobs = read(fields, "logprobs", int, "a whole number from 0 to 5")
        options = read(fields, "stream_options", dict[str, Any], "an object") or {}
        n = read(fields, "n", int, "a whole number from 1 on")
        if n is not None and n < 1:
            raise invalid("`n` must be a whole number from 1 on")
        if read(fields, "echo", bool, "true or false"):
            raise invalid("`echo` would mix the prompt into the sampled text: leave it out")
        sampling = {
            name: msgspec.json.decode(raw) for name, raw in fields.items() if name not in _NOT_SAMPLING
        }
        return ChatCall(
            fields=fields,
            messages=[],
            tools=None,
            model=read(fields, "model", str, "a string") or "default",
            stream=bool(read(fields, "stream", bool, "true or false")),
            n=n or 1,
            wants_logprobs=logprobs is not None,
            wants_token_ids=bool(read(fields, "return_token_ids", bool, "true or false")),
            wants_usage=options.get("include_usage") is True,
            sampling=sampling,
            client_ids={k: sampling[k] for k in _CLIENT_ID_FIELDS if isinstance(sampling.get(k), str)},
            prompt_ids=prompt_ids,
            is_chat=False,
        )

    def reply(self, call: ChatCall, engine: EngineObject) -> bytes:
        """The engine's body, less what the client did not ask for."""
        return _encode(call, engine)

    def stream(self, call: ChatCall) -> OpenAiStream:
        """A fresh stream."""
        return OpenAiStream(call, _encode)

    def error(self, failure: Failure) -> bytes:
        """OpenAI's error object."""
        return error_body(failure)


def _one_prompt(fields: dict[str, msgspec.Raw]) -> tuple[msgspec.Raw, list[int] | None]:
    """The prompt, taken out of a list of one, and its ids where it has them."""
    what = "`prompt` must be a text or a list of token ids"
    if "prompt" not in fields:
        raise invalid(f"{what}: it is missing")
    raw = fields["prompt"]
    try:
        prompt = _prompt.decode(raw)
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise invalid("`prompt` has several prompts: send one call for each, so each is a step")
            raw = msgspec.Raw(msgspec.json.encode(prompt[0]))
            prompt = _prompt.decode(raw)
        if isinstance(prompt, str):
            return raw, None
        if not prompt:
            raise invalid(f"{what}: it is empty")
        return raw, _ids.decode(raw)
    except (msgspec.MsgspecError, UnicodeError) as exc:
        raise invalid(what) from exc


def _encode(call: ChatCall, engine: EngineObject) -> bytes:
    fields: dict[str, Any] = dict(engine.fields)
    if not call.wants_token_ids:
        for name in ENGINE_FIELDS:
            fields.pop(name, None)
    if "choices" in fields:
        fields["choices"] = [_shown(call, choice) for choice in engine.choices]
    return msgspec.json.encode(fields)


def _shown(call: ChatCall, choice: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    shown = dict(choice)
    if not call.wants_token_ids:
        shown.pop("token_ids", None)
        shown.pop("prompt_token_ids", None)
    if not call.wants_logprobs and "logprobs" in shown:
        shown["logprobs"] = _NULL
    return shown
