"""House rules that no linter has: file sizes, and no registry host in any file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_LINES = 400
CODE = {".py", ".sh", ".sql", ".md", ".toml", ".yaml", ".yml"}
NOT_OURS = {"constraints.txt", "LICENSE"}
REGISTRY = re.compile(
    r"(pypi|pythonhosted|npmjs|crates|repo1?\.maven|proxy\.golang)\.(org|io|com|apache\.org)"
)


def problems(root: Path) -> list[str]:
    """What is wrong with the tracked files, one line each."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    found = []
    for name in listed.stdout.splitlines():
        path = root / name
        if name in NOT_OURS or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        lines = text.count("\n")
        if path.suffix in CODE and lines > MAX_LINES:
            found.append(f"{name}: {lines} lines, over {MAX_LINES}: split it")
        if match := REGISTRY.search(text):
            found.append(f"{name}: names a package registry ({match[0]})")
    return found


if __name__ == "__main__":
    if wrong := problems(Path(__file__).parent.parent):
        sys.exit("\n".join(wrong))
