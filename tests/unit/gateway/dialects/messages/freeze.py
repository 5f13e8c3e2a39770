"""Writes the golden results anew: `python -m tests.unit.gateway.dialects.messages.freeze`. Read the diff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.dialects.messages import MessagesCall
from gateway.engine import EngineObject
from gateway.failures import Failure
from tests.unit.gateway.dialects.messages.samples import GOLDEN, STOPS, dialect

BROKEN_OFF = Failure(502, "upstream_broke_off", "the engine broke off its answer: try again")


def shown(call: MessagesCall) -> dict[str, Any]:
    """What a request became."""
    return {
        "engine": {name: json.loads(bytes(raw)) for name, raw in call.fields.items()},
        "model": call.model,
        "stream": call.stream,
        "client_ids": call.client_ids,
        "sampling": call.sampling,
    }


def translated(request: Path) -> str:
    call = dialect().parse(request.read_bytes())
    assert [json.loads(m) for m in call.messages] == json.loads(bytes(call.fields["messages"]))
    return json.dumps(shown(call), indent=1, ensure_ascii=False) + "\n"


def streamed(chunks: Path) -> bytes:
    messages = dialect()
    stream = messages.stream(messages.parse(STOPS))
    out = b"".join(stream.feed(EngineObject.parse(line)) for line in chunks.read_bytes().splitlines())
    return out + (stream.fail(BROKEN_OFF) if "broken_off" in chunks.name else stream.finish())


if __name__ == "__main__":
    for path in sorted((GOLDEN / "requests").glob("*.request.json")):
        path.with_name(path.name.replace(".request.", ".call.")).write_text(translated(path))
    for path in sorted((GOLDEN / "streams").glob("*.chunks.jsonl")):
        path.with_name(path.name.replace(".chunks.jsonl", ".sse")).write_bytes(streamed(path))
