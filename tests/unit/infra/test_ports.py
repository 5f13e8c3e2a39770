"""Ports of stacks that start at the same time on one machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from infra.local.ports import LOOPBACK, PortLeases, free_port


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_preferred_port_is_taken_when_it_is_free() -> None:
    port = free_port()
    assert PortLeases().choose(port) == port


def test_a_port_in_use_is_not_chosen() -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen()
        port = server.getsockname()[1]
        assert PortLeases().choose(port) != port


def test_a_claimed_port_is_nobody_elses_until_it_is_given_back() -> None:
    port = free_port()
    first, second = PortLeases(), PortLeases()
    assert first.choose(port) == port
    assert first.choose(port) != port
    assert second.choose(port) != port
    first.release()
    assert second.choose(port) == port
