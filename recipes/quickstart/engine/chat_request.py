"""A chat completion request, checked. Whatever this engine cannot honour is refused, not ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ROLES = {"system", "developer", "user", "assistant", "tool"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "top_k": (0, -1),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto", "none"),
}
MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20


class BadRequest(Exception):
    """The request cannot be served; `status` is the HTTP status."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked for, with defaults filled in."""

    messages: list[Mapping[str, Any]]
    tools: list[Mapping[str, Any]] | None
    parse_calls: bool
    model: str | None
    stream: bool
    include_usage: bool
    choices: int
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    logprobs: bool
    top_logprobs: int
    return_token_ids: bool
    tokens_as_ids: bool


def parse_request(body: Any) -> ChatRequest:
    """Check a JSON body. Raises `BadRequest` that names the field and what is allowed."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    for name, neutral in _NEUTRAL.items():
        if body.get(name) is not None and body[name] not in neutral:
            allowed = " or ".join(map(repr, neutral))
            raise BadRequest(
                f"{name}={body[name]!r} is not supported by this engine: use {allowed}", param=name
            )
    options = body.get("stream_options") or {}
    tools = _tools(body.get("tools"))
    limit = body.get("max_completion_tokens")
    return ChatRequest(
        messages=_messages(body.get("messages")),
        tools=tools,
        parse_calls=tools is not None and body.get("tool_choice") != "none",
        model=_text(body, "model"),
        stream=bool(body.get("stream")),
        include_usage=bool(isinstance(options, dict) and options.get("include_usage")),
        choices=int(_number(body, "n", 1, low=1, high=MAX_CHOICES, whole=True)),
        max_tokens=_limit(body, "max_tokens" if limit is None else "max_completion_tokens"),
        temperature=_number(body, "temperature", 1.0, low=0.0, high=10.0),
        top_p=_number(body, "top_p", 1.0, low=1e-6, high=1.0),
        seed=None if body.get("seed") is None else int(_number(body, "seed", 0, whole=True)),
        stop=_stop(body.get("stop")),
        logprobs=bool(body.get("logprobs")),
        top_logprobs=int(_number(body, "top_logprobs", 0, low=0, high=MAX_TOP_LOGPROBS, whole=True)),
        return_token_ids=bool(body.get("return_token_ids")),
        tokens_as_ids=bool(body.get("return_tokens_as_token_ids")),
    )


def _number(
    body: Mapping[str, Any],
    name: str,
    default: float,
    *,
    low: float = -(2.0**63),
    high: float = 2.0**63,
    whole: bool = False,
) -> float:
    value = body.get(name)
    if value is None:
        return default
    right_type = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right_type or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise BadRequest(f"{name} must be {kind} from {low:g} to {high:g}, not {value!r}", param=name)
    return value  # type: ignore[no-any-return]


def _limit(body: Mapping[str, Any], name: str) -> int | None:
    return None if body.get(name) is None else int(_number(body, name, 0, low=1, high=2**31, whole=True))


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} must be a string, not {value!r}", param=name)
    return value


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise BadRequest("stop must be a string or a list of non-empty strings", param="stop")
    return tuple(stops)


def _messages(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a list of at least one message", param="messages")
    for index, message in enumerate(value):
        where = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise BadRequest(f"{where} needs a role: one of {', '.join(sorted(_ROLES))}", param=where)
        _check_content(message, where)
        for call in message.get("tool_calls") or []:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict) or not all(
                isinstance(function.get(key), str) for key in ("name", "arguments")
            ):
                raise BadRequest(f"{where}.tool_calls needs function.name and arguments", param=where)
    return value


def _check_content(message: Mapping[str, Any], where: str) -> None:
    content = message.get("content")
    if content is None:
        if message["role"] != "assistant":
            raise BadRequest(f"{where}.content is missing", param=f"{where}.content")
    elif isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise BadRequest(f"{where}.content may hold text parts only", param=f"{where}.content")
    elif not isinstance(content, str):
        raise BadRequest(f"{where}.content must be a string or a list of parts", param=f"{where}.content")


def _tools(value: Any) -> list[Mapping[str, Any]] | None:
    if not value:
        return None
    if not isinstance(value, list) or not all(
        isinstance(tool, dict) and isinstance(tool.get("function"), dict) for tool in value
    ):
        raise BadRequest("tools must be a list of function tools", param="tools")
    return value
