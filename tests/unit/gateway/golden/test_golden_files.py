"""What each protocol's client and each kind of engine is sent is as frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.gateway.golden.cases import HERE, golden_files

FILES = dict(golden_files())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_what_is_sent_is_as_frozen(path: Path) -> None:
    assert FILES[path].decode() == path.read_bytes().decode()


def test_every_frozen_file_is_held_against_something() -> None:
    sources = {path for pattern in ("*.request.json", "*.reply") for path in HERE.glob(f"*/{pattern}")}
    assert {path for path in HERE.glob("*/*") if path.is_file()} == sources | set(FILES)
