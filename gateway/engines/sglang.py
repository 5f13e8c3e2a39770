"""SGLang: ids under names of its own, in a stream all at its end."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from agentworld.contract.events import TokenId
from gateway.canonical import ChatCall
from gateway.engine import Answer, EngineObject, MalformedReply
from gateway.engines.base import (
    NULL,
    TRUE,
    Reading,
    lift_versions,
    merged,
    with_reasoning_as,
    with_usage,
    without_reasoning,
)

_ASKED_ONLY = ("return_token_ids", "return_meta_info", "return_input_ids_in_sglext", "include_reasoning")


class _Extension(msgspec.Struct):
    input_ids: list[TokenId] | None = None
    output_ids: list[list[TokenId]] | None = None


class _MetaInfo(msgspec.Struct):
    output_token_logprobs: list[tuple[float | None, int, Any]] | None = None
    """Per token: logprob, id, text."""
    weight_version: msgspec.Raw = NULL


class SglangAdapter:
    """Streams refuse `return_token_ids`, so they are asked for the `sglext` chunk instead."""

    def __init__(self, *, logprobs: bool = True) -> None:
        self._logprobs = logprobs

    def added(self, call: ChatCall) -> dict[str, Any]:
        """Ids and logprobs, in the form that suits; usage."""
        added: dict[str, Any] = {"logprobs": TRUE} if self._logprobs else {}
        if call.stream:
            added["return_input_ids_in_sglext"] = TRUE
            added["return_output_ids_in_sglext"] = TRUE
            added["stream_options"] = with_usage(call)
        else:
            added["return_token_ids"] = TRUE
            added["return_meta_info"] = TRUE
        if call.prompt_ids is not None:
            added["input_ids"] = call.prompt_ids
        return added

    def body(self, call: ChatCall, *, model: str, without: Collection[str] = ()) -> bytes:
        """The request; reasoning in the history is called `reasoning_content`."""
        fields = merged(call, self.added(call), model=model, without=without, dropped=_dropped(call))
        fields["messages"] = with_reasoning_as(call.fields["messages"], "reasoning_content")
        if call.raw:
            fields["separate_reasoning"] = False  # and `tool_choice` none would take tools from the prompt
        return msgspec.json.encode(fields)

    def reading(self, call: ChatCall, answer: Answer) -> Reading:
        """Renames to vLLM's names, which are the canonical ones."""
        return SglangReading(call, answer)


def _dropped(call: ChatCall) -> tuple[str, ...]:
    return _ASKED_ONLY if call.stream else ("include_reasoning",)


class SglangReading:
    """One reply of SGLang."""

    def __init__(self, call: ChatCall, answer: Answer) -> None:
        self._answer = answer
        self._shows_ids = call.wants_token_ids
        self._shows_meta = call.sampling.get("return_meta_info") is True
        self._hides_reasoning = call.sampling.get("include_reasoning") is False

    def whole(self, part: EngineObject) -> EngineObject:
        """Ids from the choices or `sglext`; logprobs from `meta_info` where the usual ones are missing."""
        self._rename(part, "message")
        self._answer.add(part, "message")
        self._clean(part, "message")
        return part

    def chunk(self, part: EngineObject) -> EngineObject | None:
        """As it is; the last chunk with `sglext` is the gateway's alone unless the client asked for ids."""
        bare = not part.choices and "usage" not in part.fields and "sglext" in part.fields
        self._rename(part, "delta")
        self._answer.add(part, "delta")
        self._clean(part, "delta")
        return None if bare and not self._shows_ids else part

    def _rename(self, part: EngineObject, key: str) -> None:
        try:
            for choice in part.choices:
                self._rename_choice(part, choice, key)
            if (raw := part.fields.pop("sglext", None)) is not None:
                _spread(part, msgspec.json.decode(raw, type=_Extension | None), key)
            lift_versions(part.fields)
        except msgspec.MsgspecError as exc:
            raise MalformedReply(f"not SGLang's form of a chat completion: {exc}") from exc

    def _rename_choice(self, part: EngineObject, choice: dict[str, msgspec.Raw], key: str) -> None:
        if (ids := choice.pop("prompt_token_ids", None)) is not None:
            part.fields.setdefault("prompt_token_ids", ids)
        if (ids := choice.pop("response_token_ids", None)) is not None:
            choice["token_ids"] = ids
        raw = choice.get("meta_info")
        if raw is None or key != "message":
            return
        meta = msgspec.json.decode(raw, type=_MetaInfo | None)
        if meta is None:
            return
        if bytes(choice.get("logprobs", NULL)) == b"null" and meta.output_token_logprobs is not None:
            content = [{"token": t or "", "logprob": p} for p, _, t in meta.output_token_logprobs]
            choice["logprobs"] = _raw({"content": content})
        if "token_ids" not in choice and meta.output_token_logprobs is not None:
            choice["token_ids"] = _raw([token for _, token, _ in meta.output_token_logprobs])
        if bytes(meta.weight_version) != b"null":
            choice.setdefault("weight_version", meta.weight_version)

    def _clean(self, part: EngineObject, key: str) -> None:
        for choice in part.choices:
            choice.pop("weight_version", None)
            if not self._shows_meta:
                choice.pop("meta_info", None)
            if self._hides_reasoning and key in choice:
                choice[key] = without_reasoning(choice[key])


def _spread(part: EngineObject, extension: _Extension | None, key: str) -> None:
    """Put the ids of `sglext` where vLLM has them."""
    if extension is None:
        return
    if extension.input_ids is not None:
        part.fields.setdefault("prompt_token_ids", _raw(extension.input_ids))
    known = {msgspec.json.decode(c.get("index", b"0"), type=int): c for c in part.choices}
    for index, ids in enumerate(extension.output_ids or ()):
        if index in known:
            known[index].setdefault("token_ids", _raw(ids))
        else:
            empty = {"index": _raw(index), key: msgspec.Raw(b"{}"), "token_ids": _raw(ids)}
            part.choices.append(empty | {"finish_reason": NULL})


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
