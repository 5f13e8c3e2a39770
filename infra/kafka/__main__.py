"""`python -m infra.kafka`: real Apache Kafka in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from infra.kafka.apache import ApacheKafka
from infra.local.child import LaunchError
from infra.local.ports import PortLeases

_DEFAULT_PORT = 9092
_WATCH_S = 0.5


def main() -> int:
    """Start, print the address, stop on SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m infra.kafka", description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, default=Path(".agentworld/kafka"), help="kept between starts"
    )
    parser.add_argument("--port", type=int, help=f"default {_DEFAULT_PORT}, or a free port if that is taken")
    options = parser.parse_args()

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    log_path = options.data_dir.absolute() / "kafka.log"
    broker = ApacheKafka(
        options.data_dir / "data", log_path, port=options.port or PortLeases().choose(_DEFAULT_PORT)
    )
    print("starting Apache Kafka (the first time its jars are resolved with Maven) …", file=sys.stderr)
    try:
        broker.start()
    except LaunchError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    print(broker.bootstrap, flush=True)
    print(f"AGENTWORLD_KAFKA_BOOTSTRAP={broker.bootstrap}  log: {log_path}  Ctrl-C stops it", file=sys.stderr)
    while broker.alive and not stopping.wait(_WATCH_S):
        pass
    if not stopping.is_set():
        print(f"error: Apache Kafka ended by itself; see {log_path}", file=sys.stderr)
        return 1
    broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
