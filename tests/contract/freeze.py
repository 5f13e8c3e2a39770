"""Write golden messages and schemas of event types that have none: `python -m tests.contract.freeze`.

What is written is a promise to every reader out there: existing files are never rewritten.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from agentworld.contract.codec import encode
from agentworld.contract.schema import schema_of
from tests.contract.examples import all_examples

HERE = Path(__file__).parent


def golden_path(topic: str, tag: str, version: int) -> Path:
    return HERE / "golden" / topic / f"{tag}.v{version}.json"


def schema_path(tag: str, version: int) -> Path:
    return HERE / "schemas" / f"{tag}.v{version}.json"


def main() -> None:
    for topic, examples in all_examples().items():
        for event in examples:
            tag = str(event.__struct_config__.tag)
            files = {
                golden_path(topic, tag, event.schema_version): msgspec.json.format(encode(event)),
                schema_path(tag, event.schema_version): json.dumps(
                    schema_of(type(event)), indent=1, sort_keys=True
                ).encode(),
            }
            for path, content in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    path.write_bytes(content + b"\n")
                    print("wrote", path)


if __name__ == "__main__":
    main()
