"""What golden files there are, and what each must hold now.

`<protocol>/<name>.request.json` is what a client sends: written by hand, as real clients shape it. From it
follow `<name>.call.json`, the canonical call, and `<name>.<engine>.json`, what each kind of engine is asked.
An engine's `*.reply` (of chats: `../engines/golden`) becomes `<protocol>/<engine>.<form>.client`, what the
client is sent; `asked` in its name: to a client that itself asked for ids, log-probabilities and usage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.canonical import ChatCall
from gateway.dialects import ChatCompletions, Completions, Dialect, Generate, Messages, Responses
from gateway.engine import Answer, EngineObject
from gateway.engines import EngineKind
from gateway.sse import SseParser
from tests.unit.gateway.streams.engine_streams import KINDS, adapter_for

HERE = Path(__file__).parent
CHATS = HERE.parent / "engines" / "golden"
ELSEWHERE = HERE.parent / "dialects"
"""Requests of Responses and Messages; their canonical calls stand beside them."""
TEXT_ENGINES: tuple[EngineKind, ...] = ("vllm", "openai")
ASKED: dict[str, dict[str, Any]] = {
    "chat_completions": {
        "logprobs": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    },
    "completions": {"logprobs": 0, "return_token_ids": True, "stream_options": {"include_usage": True}},
}
LEAST: dict[str, dict[str, Any]] = {
    "chat_completions": {"messages": [{"role": "user", "content": "hi"}]},
    "completions": {"prompt": "hi", "n": 2},
    "generate": {"prompt_ids": [1, 2, 3], "sampling_params": {"logprobs": True}},
    "responses": {
        "input": "hi",
        "tools": [{"type": "function", "name": "look", "parameters": {}, "strict": False}],
    },
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}


def _same_id(number: int = 0) -> str:
    return "01890000-0000-7000-8000-000000000000"


def dialect(protocol: str) -> Dialect:
    """A dialect whose ids and times do not change."""
    match protocol:
        case "chat_completions":
            return ChatCompletions()
        case "completions":
            return Completions()
        case "generate":
            return Generate()
        case "responses":
            return Responses(new_id=_same_id)
        case _:
            return Messages(new_id=_same_id)


def golden_files() -> Iterator[tuple[Path, bytes]]:
    """Every file that follows from another, and what it must hold."""
    yield from _from_requests()
    yield from _from_replies()


def requests() -> Iterator[tuple[str, Path]]:
    """Protocol and file of each client request."""
    for protocol in LEAST:
        yield from ((protocol, path) for path in sorted((HERE / protocol).glob("*.request.json")))
        yield from (
            (protocol, path)
            for path in sorted((ELSEWHERE / protocol / "golden" / "requests").glob("*.request.json"))
        )


def _from_requests() -> Iterator[tuple[Path, bytes]]:
    for protocol, path in requests():
        name = path.name.removesuffix(".request.json")

        def call(protocol: str = protocol, path: Path = path) -> ChatCall:
            return dialect(protocol).parse(path.read_bytes())

        if path.parent == HERE / protocol:
            yield HERE / protocol / f"{name}.call.json", _lines(_canonical(call()))
        for kind in KINDS:
            body = adapter_for(kind, is_chat=call().is_chat).body(call(), model="served")
            yield HERE / protocol / f"{name}.{kind}.json", _lines(json.loads(body))


def _canonical(call: ChatCall) -> dict[str, Any]:
    return {
        "fields": {name: json.loads(bytes(raw)) for name, raw in call.fields.items()},
        "messages": [json.loads(message) for message in call.messages],
        "tools": None if call.tools is None else json.loads(call.tools),
        "model": call.model,
        "stream": call.stream,
        "n": call.n,
        "wants": {
            "logprobs": call.wants_logprobs,
            "token_ids": call.wants_token_ids,
            "usage": call.wants_usage,
        },
        "sampling": call.sampling,
        "client_ids": call.client_ids,
        "prompt_ids": call.prompt_ids,
        "place": call.place,
    }


def _lines(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def _from_replies() -> Iterator[tuple[Path, bytes]]:
    for protocol, least in LEAST.items():
        is_chat = protocol not in {"completions", "generate"}
        folder = CHATS if is_chat else HERE / protocol
        for kind in KINDS if is_chat else TEXT_ENGINES if protocol == "completions" else ("vllm",):
            for form in ("whole",) if protocol == "generate" else ("whole", "stream"):
                reply = (folder / f"{kind}.{form}.reply").read_bytes()
                for asked in ({}, ASKED[protocol]) if protocol in ASKED else ({},):
                    shown = _client(protocol, kind, reply, least | asked | {"stream": form == "stream"})
                    name = f"{kind}.{form}{'.asked' if asked else ''}.client"
                    yield HERE / protocol / name, shown


def _client(protocol: str, kind: EngineKind, reply: bytes, body: dict[str, Any]) -> bytes:
    """What the client is sent for an engine's reply."""
    spoken = dialect(protocol)
    call = spoken.parse(json.dumps(body).encode())
    reading = adapter_for(kind, is_chat=call.is_chat).reading(call, Answer())
    if not call.stream:
        return spoken.reply(call, reading.whole(EngineObject.parse(reply))) + b"\n"
    stream = spoken.stream(call)
    out = b""
    for data in SseParser().feed(reply):
        if data != b"[DONE]" and (chunk := reading.chunk(EngineObject.parse(data))) is not None:
            out += stream.feed(chunk)
    return out + stream.finish()
