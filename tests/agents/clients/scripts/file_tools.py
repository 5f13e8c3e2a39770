"""Two tools for a file, and their schemas."""

import json
from pathlib import Path

DESCRIPTIONS = {
    "write_file": "Create a file with the given content.",
    "append_file": "Add content to the end of a file.",
}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
    "additionalProperties": False,
}
MAX_TURNS = 8


def write_file(path: str, content: str) -> str:
    """Create a file with the given content."""
    Path(path).write_text(content)
    return f"wrote {len(content)} characters"


def append_file(path: str, content: str) -> str:
    """Add content to the end of a file."""
    with Path(path).open("a") as file:
        file.write(content)
    return f"added {len(content)} characters"


TOOLS = {"write_file": write_file, "append_file": append_file}


def call(name: str, arguments: str | dict[str, str]) -> str:
    """Run a tool as the model asked."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return TOOLS[name](**given)
