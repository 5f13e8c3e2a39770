"""Rewrite the golden files from what the code does now.

`python -m tests.unit.gateway.dialects.responses.freeze`

Read the difference before committing it: a changed golden file changes prompts or breaks clients.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.unit.gateway.dialects.responses.samples import dialect, golden_streams

GOLDEN = Path(__file__).parent / "golden"


def chat_of(request: bytes) -> bytes:
    """The chat completions body of a request, in lines."""
    call = dialect().parse(request)
    return msgspec.json.format(msgspec.json.encode(call.fields), indent=1) + b"\n"


def main() -> None:
    for path in sorted((GOLDEN / "requests").glob("*.request.json")):
        path.with_name(path.name.replace(".request.", ".chat.")).write_bytes(chat_of(path.read_bytes()))
    for name, stream in golden_streams().items():
        (GOLDEN / "streams" / f"{name}.sse").write_bytes(stream)


if __name__ == "__main__":
    main()
