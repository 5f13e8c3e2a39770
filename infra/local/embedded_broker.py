"""The embedded broker: noida-db's Kafka service, one static binary from PyPI.

After `kill` treat its last second as lost: it comes back at an earlier consistent state.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path
from types import MappingProxyType

from infra.local.broker import LocalBroker
from infra.local.child import Child, LaunchError
from infra.local.ports import LOOPBACK

EMBEDDED_TOPIC_CONFIG = {
    # It rewrites its state as one file, so what it retains must stay small (about 50 MB compressed).
    "segment.bytes": str(1024 * 1024),
    "retention.bytes": str(8 * 1024 * 1024),
}
"""Topic configuration for this broker; `retention.bytes` counts per partition."""

EMBEDDED_IDLE_FETCH_MS = 100
"""It answers an empty fetch at once; without a pause an idle consumer would keep a core busy."""

EMBEDDED_PARTITIONS = 4
"""Partitions of each topic on this broker."""


def broker_binary() -> Path:
    """The binary from the wheel. Raises `LaunchError` saying what to install."""
    spec = importlib.util.find_spec("noida_db")
    if spec is None or spec.origin is None:
        raise LaunchError(
            "the embedded broker is not installed: pip install 'agentworld[embedded]' "
            "(package noida-db), or use a broker of your own with --kafka HOST:PORT"
        )
    binary = Path(spec.origin).with_name("noida-db")
    if not os.access(binary, os.X_OK):
        raise LaunchError(
            f"the embedded broker has no program for this platform ({platform.system()} "
            f"{platform.machine()}): {binary} is missing. Use --broker apache (Java 17 and Maven) "
            "or --kafka HOST:PORT"
        )
    return binary


class EmbeddedBroker(LocalBroker):
    """One broker on loopback."""

    title = "the embedded broker"
    start_timeout_s = 20.0
    client_settings = MappingProxyType(
        {
            "partitions": EMBEDDED_PARTITIONS,
            "topic_config": EMBEDDED_TOPIC_CONFIG,
            "idle_fetch_ms": EMBEDDED_IDLE_FETCH_MS,
        }
    )

    def prepare(self) -> Child:
        """Make its home. Raises `LaunchError` (wheel, platform)."""
        binary = broker_binary()
        home = self._data_dir / "home"
        home.mkdir(parents=True, exist_ok=True)
        return Child(
            [
                str(binary),
                "start",
                *("--data-dir", str(self._data_dir)),
                *("--host", LOOPBACK),
                *("--only", "kafka"),
                *("--kafka-port", str(self.port)),
            ],
            env={"HOME": str(home), "PATH": os.environ.get("PATH", "")},
            log_path=self._log_path,
            cwd=self._data_dir,
        )
