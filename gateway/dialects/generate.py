"""Claw-R1's `POST /generate`: token ids in, token ids out."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import msgspec

from agentworld.contract.events import TokenId
from gateway.canonical import ChatCall
from gateway.dialects.base import ClientStream
from gateway.dialects.completions import decoded, invalid, read
from gateway.engine import Choice, EngineObject, MalformedReply
from gateway.engines.completions import as_chat
from gateway.failures import Failure, error_body

_OWN = frozenset({"model", "logprobs", "stream", "n", "return_token_ids", "prompt", "stream_options", "echo"})
"""Sampling parameters that the gateway decides itself."""
_EMPTY = frozenset({b"null", b"[]", b"{}"})


class Generate:
    """Samples from a prompt given as ids. With `trajectory_uid` and `prompt_uid` the step is captured."""

    protocol: Literal["generate"] = "generate"
    path = "generate"

    def parse(self, body: bytes) -> ChatCall:
        """The request as a call of text completions. Raises `InvalidInput` that names the field."""
        sent = decoded(body)
        for name in ("image_data", "video_data"):
            if bytes(sent.get(name, b"null")) not in _EMPTY:
                raise invalid(f"`{name}` cannot stand beside token ids here: send it as a chat message")
        prompt_ids = read(sent, "prompt_ids", list[TokenId], "a list of token ids")
        if not prompt_ids:
            raise invalid("`prompt_ids` is missing or empty: send the prompt's token ids")
        sampling = read(sent, "sampling_params", dict[str, msgspec.Raw], "an object") or {}
        model = read(sampling, "model", str, "a string") or "default"
        fields = {name: raw for name, raw in sampling.items() if name not in _OWN}
        fields["model"] = _raw(model)
        fields["prompt"] = _raw(prompt_ids)
        # Left out, it is 16 in text completions; null is as much as the model can.
        fields.setdefault("max_tokens", msgspec.Raw(b"null"))
        trajectory = read(sent, "trajectory_uid", str, "a string")
        prompt = read(sent, "prompt_uid", str, "a string")
        if (trajectory is None) != (prompt is None):
            raise invalid("`trajectory_uid` and `prompt_uid` go together: send both, or neither")
        return ChatCall(
            fields=fields,
            messages=[],
            tools=None,
            model=model,
            stream=False,
            n=1,
            sampling={name: msgspec.json.decode(raw) for name, raw in sampling.items() if name != "model"},
            place=None if trajectory is None or prompt is None else (trajectory, prompt),
            prompt_ids=prompt_ids,
            is_chat=False,
        )

    def reply(self, call: ChatCall, engine: EngineObject) -> bytes:
        """`{token_ids, log_probs, stop_reason}`. Raises `MalformedReply` where the engine gave no ids."""
        choice = Choice(0)
        try:
            choice.add(as_chat(engine, "message", None).choices[0], "message")
        except msgspec.MsgspecError as exc:
            raise MalformedReply(f"not a completion: {exc}") from exc
        if choice.ids is None:
            raise MalformedReply("it has no token ids, which /generate needs: use vLLM 0.10.2 or newer")
        reply: dict[str, Any] = {"token_ids": choice.ids}
        if choice.logprobs is not None:
            reply["log_probs"] = choice.logprobs
        reply["stop_reason"] = choice.finish_reason
        return msgspec.json.encode(reply)

    def stream(self, call: ChatCall) -> ClientStream:
        """There is none."""
        _never()

    def error(self, failure: Failure) -> bytes:
        """OpenAI's error object."""
        return error_body(failure)


def _never() -> NoReturn:
    raise NotImplementedError("/generate does not stream")


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
