"""Continuing from sampled ids: a prompt that begins with exactly what an earlier step sampled. Pure.

A template renders past turns from text, and tokenizing that text anew may give other ids than were
sampled. So the prompt is the earlier step's ids, and behind them only what the engine's own rendering has
behind that turn. Where the turn ends is found by rendering twice: the call, and the call with other words
in its first new message. What both share ends within that message, so the last end of a turn in what they
share is that turn's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.contract.delta import common_prefix, ids_digest
from agentworld.contract.events import TokenId
from gateway.canonical import ChatCall, Continued, EarlierStep
from gateway.engine import MalformedReply
from gateway.engines.base import EngineKind, with_reasoning_as

_UNUSUAL = ("continue_final_message", "add_generation_prompt", "documents")
_PROBES = ("0", "1")
_TEXT_ONLY = frozenset({"text", "refusal", "thinking"})


class CannotContinue(Exception):
    """The prompt has to be rendered anew; the message is the reason, as a captured step has it."""


class _Tokenized(msgspec.Struct):
    tokens: list[TokenId]


class _Detokenized(msgspec.Struct):
    prompt: str | None = None
    text: str | None = None


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


_message = msgspec.json.Decoder(_Message)


def rendering_path(kind: EngineKind) -> str:
    """Beside the engine's base URL without `/v1`."""
    return "/v1/tokenize" if kind == "sglang" else "/tokenize"


def rendering_body(kind: EngineKind, call: ChatCall, messages: Sequence[bytes], *, model: str) -> bytes:
    """Asks for the ids of `messages` as the engine would render them for `call`."""
    listed = msgspec.Raw(b"[" + b",".join(messages) + b"]")
    fields: dict[str, Any] = {"model": model}
    names = ["tools", "chat_template_kwargs", "chat_template"]
    if kind == "sglang":
        fields["messages"] = with_reasoning_as(listed, "reasoning_content")
        names += ["tool_choice", "reasoning_effort"]
    else:
        fields["messages"] = with_reasoning_as(listed, "reasoning")
    fields |= {name: call.fields[name] for name in names if name in call.fields}
    if kind != "sglang" and call.sampling.get("reasoning_effort") is not None:
        given = call.sampling.get("chat_template_kwargs")
        effort = {"reasoning_effort": call.sampling["reasoning_effort"]}
        fields["chat_template_kwargs"] = {**effort, **(given if isinstance(given, dict) else {})}
    return msgspec.json.encode(fields)


def rendered_ids(reply: bytes) -> list[int]:
    """The ids in a rendering's reply. Raises `MalformedReply`."""
    try:
        return msgspec.json.decode(reply, type=_Tokenized).tokens
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise MalformedReply(f"not a tokenized chat: {exc}") from exc


def probe(call: ChatCall, earlier: EarlierStep) -> list[bytes]:
    """The earlier step's messages and the first new one with other words. Raises `CannotContinue`."""
    if any(bytes(call.fields.get(name, b"null")) not in {b"null", b"[]"} for name in _UNUSUAL):
        raise CannotContinue("unusual_prompt")
    try:
        read = [_message.decode(message) for message in call.messages]
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise CannotContinue("unusual_prompt") from exc
    if any(isinstance(m.content, list) and any(p.type not in _TEXT_ONLY for p in m.content) for m in read):
        raise CannotContinue("not_only_text")
    if read[earlier.messages].role == "assistant" or read[-1].role == "assistant":
        raise CannotContinue("unusual_prompt")
    first = call.messages[earlier.messages]
    fields: dict[str, Any] = msgspec.json.decode(first, type=dict[str, msgspec.Raw])
    content = read[earlier.messages].content
    text = "".join(part.text for part in content) if isinstance(content, list) else content or ""
    fields["content"] = _PROBES[text.lstrip().startswith(_PROBES[0])]
    return [*call.messages[: earlier.messages], msgspec.json.encode(fields)]


def continued(earlier: EarlierStep, rendered: list[int], probed: list[int]) -> Continued:
    """The prompt's ids. Raises `CannotContinue` where the template does not present the past as it was."""
    known = earlier.rendered_tokens
    if ids_digest(rendered[:known]) != earlier.rendered_digest:
        raise CannotContinue("history_rendered_anew")
    shared = common_prefix(rendered, probed)
    turn = rendered[known:shared]
    if earlier.end_id not in turn:
        raise CannotContinue("end_of_turn_not_found")
    end = shared - 1 - turn[::-1].index(earlier.end_id)
    behind = end + 1 if earlier.ids[-1] == earlier.end_id else end
    return Continued(earlier, [*earlier.ids, *rendered[behind:]], rendered, behind)


def reading_path(kind: EngineKind) -> str:
    """Where the engine turns ids into text."""
    return "/v1/detokenize" if kind == "sglang" else "/detokenize"


def reading_body(ids: Sequence[TokenId], *, model: str) -> bytes:
    """Asks for the text of `ids`."""
    return msgspec.json.encode({"model": model, "tokens": ids, "skip_special_tokens": False})


def read_text(reply: bytes) -> str:
    """The text, under vLLM's name or SGLang's. Raises `MalformedReply`."""
    try:
        found = msgspec.json.decode(reply, type=_Detokenized)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise MalformedReply(f"not a text: {exc}") from exc
    text = found.prompt if found.prompt is not None else found.text
    if text is None:
        raise MalformedReply("it has no text")
    return text


def check_same_words(sampled: str, rendered: str) -> None:
    """Raise `CannotContinue` where the template says a turn in other words, such as without its thoughts.

    White space does not count: templates write it their own way.
    """
    if "".join(sampled.split()) != "".join(rendered.split()):
        raise CannotContinue("turn_rendered_otherwise")
