"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Collection
from pathlib import Path

LOOPBACK = "127.0.0.1"


def port_is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_port(*, exclude: Collection[int] = ()) -> int:
    """A port nobody listens on, not among `exclude`."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in exclude:
            return port


class PortLeases:
    """Ports claimed by this process, so that stacks that start at the same time choose different ones.

    A claim is a locked file; the kernel gives it back when the process ends.
    """

    def __init__(self) -> None:
        self._held: dict[int, int] = {}

    def choose(self, preferred: int) -> int:
        """`preferred` when it is free and nobody's claim, otherwise any such port."""
        port = preferred
        while port in self._held or not port_is_free(port) or not self._claim(port):
            port = free_port(exclude=self._held)
        return port

    def release(self) -> None:
        """Give all of them back."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _claim(self, port: int) -> bool:
        folder = Path(tempfile.gettempdir()) / f"agentworld-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        file = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._held[port] = file
        return True
