"""Writes golden files that are missing, never over one: `python -m tests.unit.gateway.golden.make_golden`.

To change what clients or engines are sent, remove the files that change, run this, and read the difference.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.engines import EngineKind
from tests.unit.gateway.golden.cases import HERE, TEXT_ENGINES, golden_files
from tests.unit.gateway.streams.engine_streams import DONE, Turn, chunks_of, event

TURNS = [Turn(text=("One", " → ", "😀", "")), Turn(text=("Zwei", ", größer", "."))]


def text_replies() -> dict[str, bytes]:
    """Replies of text completions by file name, of two choices; for `/generate` of one."""
    found = {}
    for kind in TEXT_ENGINES:
        chunks = [_worded(kind, chunk) for chunk in chunks_of(kind, TURNS, is_chat=False)]
        found[f"completions/{kind}.stream.reply"] = b"".join(map(event, chunks)) + DONE
        found[f"completions/{kind}.whole.reply"] = json.dumps(_whole(chunks)).encode()
    one = _whole(chunks_of("vllm", TURNS[:1], is_chat=False))
    return {**found, "generate/vllm.whole.reply": json.dumps(one).encode()}


def _worded(kind: EngineKind, chunk: dict[str, Any]) -> dict[str, Any]:
    """Plain APIs give no ids."""
    for choice in chunk["choices"] if kind == "openai" else ():
        choice.pop("token_ids")
        choice.pop("prompt_token_ids", None)
    return chunk


def _whole(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    choices: dict[int, dict[str, Any]] = {}
    for part in (choice for chunk in chunks for choice in chunk["choices"]):
        choices.setdefault(part["index"], dict(part))
    for index, choice in choices.items():
        parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        choice["text"] = "".join(part["text"] for part in parts)
        choice["finish_reason"] = parts[-1]["finish_reason"]
        choice["logprobs"] = {
            "token_logprobs": [p for part in parts for p in part["logprobs"]["token_logprobs"]]
        }
        if "token_ids" in parts[0]:
            choice["token_ids"] = [i for part in parts for i in part["token_ids"]]
    head = {name: value for name, value in chunks[0].items() if name != "choices"}
    return {**head, "choices": list(choices.values()), "usage": chunks[-1]["usage"]}


def main() -> None:
    """Write what is missing."""
    for name, reply in text_replies().items():
        if not (path := HERE / name).exists():
            path.write_bytes(reply)
    for path, data in golden_files():
        if not path.exists():
            path.write_bytes(data)
            print(path.relative_to(HERE))


if __name__ == "__main__":
    main()
