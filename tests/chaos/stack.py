"""The stack that the faults happen to: real Apache Kafka, two of each, in front of the scripted engine."""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from infra.local.child import Child
from infra.local.ports import LOOPBACK, free_port
from infra.local.stack import LocalStack, StackOptions

_READY_S = 60.0
BATCH_GROUPS = 4
_SETTINGS = {
    # Longer than a killed gateway needs to come back with what stands in its spool.
    "AGENTWORLD_PROCESSORS_GRACE_MS": "5000",
    "AGENTWORLD_PROCESSORS_IDLE_TIMEOUT_MS": "25000",
    "AGENTWORLD_PROCESSORS_BATCH_GROUPS": str(BATCH_GROUPS),
}


@contextlib.contextmanager
def chaos_stack(directory: Path) -> Iterator[LocalStack]:
    """Up and healthy within the block."""
    port = free_port()
    log = directory / "engine.jsonl"
    log.touch()
    engine = Child(
        [*(sys.executable, "-m", "tests.faults.engine"), *("--port", str(port), "--log", str(log))],
        env=os.environ,
        log_path=directory / "engine.log",
    )
    engine.start()
    try:
        engine.wait_ready("the scripted engine", lambda: _answers(port), timeout_s=_READY_S)
        options = StackOptions(
            data_dir=directory / "data",
            broker="apache",
            upstream_url=f"http://{LOOPBACK}:{port}/v1",
            gateways=2,
            processors=2,
            kafka_port=free_port(),
            clickhouse_port=free_port(),
            gateway_port=free_port(),
            environment=_SETTINGS,
        )
        with LocalStack(options) as stack:
            yield stack
    finally:
        engine.stop(timeout_s=15)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
