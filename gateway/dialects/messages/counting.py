"""`POST …/v1/messages/count_tokens`: how many tokens a request's prompt has.

The gateway parses the body with `Messages.parse`, puts sampled turns back, and counts so:

    async def count(call: MessagesCall, model: str) -> bytes:
        try:
            reply = await upstream.post("/tokenize", tokenize_body(call, model=model))  # beside /v1
            return count_reply(counted(reply), estimated=False)
        except (UpstreamFailed, MalformedReply):  # an engine without `/tokenize`
            return count_reply(estimate(call), estimated=True)
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.canonical import ChatCall
from gateway.engine import MalformedReply

_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_IMAGE = 1500
_TEMPLATE_FIELDS = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs")
_DATA_URL = re.compile(rb'"data:[^"]*"')


class _Tokenized(msgspec.Struct):
    count: int


def tokenize_body(call: ChatCall, *, model: str) -> bytes:
    """The body for vLLM's `POST /tokenize`, which renders the prompt as a completion would."""
    fields: dict[str, Any] = {"model": model, "messages": [msgspec.Raw(m) for m in call.messages]}
    if call.tools is not None:
        fields["tools"] = msgspec.Raw(call.tools)
    fields |= {name: call.fields[name] for name in _TEMPLATE_FIELDS if name in call.fields}
    return msgspec.json.encode(fields)


def counted(reply: bytes) -> int:
    """The count in `/tokenize`'s reply. Raises `MalformedReply`."""
    try:
        return msgspec.json.decode(reply, type=_Tokenized).count
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise MalformedReply(f"not a token count: {exc}") from exc


def estimate(call: ChatCall) -> int:
    """About how many tokens: a token per 4 bytes of JSON, 4 more per message, 1,500 per inline image."""
    tokens = len(call.tools or b"") // _BYTES_PER_TOKEN
    for message in call.messages:
        text, images = _DATA_URL.subn(b"", message) if b'"data:' in message else (message, 0)
        tokens += len(text) // _BYTES_PER_TOKEN + _TOKENS_PER_MESSAGE + images * _TOKENS_PER_IMAGE
    return tokens


def count_reply(tokens: int, *, estimated: bool) -> bytes:
    """The reply's body. An estimate says that it is one."""
    reply: dict[str, Any] = {"input_tokens": tokens}
    if estimated:
        reply["estimated"] = True
    return msgspec.json.encode(reply)
