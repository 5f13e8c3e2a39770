"""Write golden messages and schemas of event types that have none: `python -m tests.contract.freeze`.

What is written is a promise to every reader out there: existing files are never rewritten. Fields that a
type got later are promised by a further example of it, whose files end in `.2.json`, `.3.json`, …
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec

from agentworld.contract.codec import encode
from agentworld.contract.schema import schema_of
from tests.contract.examples import all_examples

HERE = Path(__file__).parent


def golden_path(topic: str, tag: str, version: int, edition: int = 1) -> Path:
    return HERE / "golden" / topic / _name(tag, version, edition)


def schema_path(tag: str, version: int, edition: int = 1) -> Path:
    return HERE / "schemas" / _name(tag, version, edition)


def _name(tag: str, version: int, edition: int) -> str:
    return f"{tag}.v{version}{'' if edition == 1 else f'.{edition}'}.json"


def main() -> None:
    for topic, examples in all_examples().items():
        editions: Counter[str] = Counter()
        for event in examples:
            tag = str(event.__struct_config__.tag)
            editions[tag] += 1
            files = {
                golden_path(topic, tag, event.schema_version, editions[tag]): msgspec.json.format(
                    encode(event)
                ),
                schema_path(tag, event.schema_version, editions[tag]): json.dumps(
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
