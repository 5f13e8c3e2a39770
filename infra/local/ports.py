"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import socket
from collections.abc import Collection

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


def choose_port(preferred: int, *, exclude: Collection[int] = ()) -> int:
    """`preferred` when it is free and not excluded, otherwise any free port."""
    if preferred not in exclude and port_is_free(preferred):
        return preferred
    return free_port(exclude=exclude)
