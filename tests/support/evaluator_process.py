"""`python -m stream_processors.evaluators` as a process, and a judge in a thread beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentworld.platform.settings import KafkaSettings
from infra.local.ports import free_port
from tests.support.judge import ScriptedJudge
from tests.support.serving import serving

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def judge_in_a_thread(judge: ScriptedJudge) -> Iterator[str]:
    """Serve it until the end of the block; its base URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    served = serving(judge.app, handler_cancellation=True)
    try:
        yield asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class EvaluatorProcess:
    """One process under the instance `0`; may be started again after its end."""

    def __init__(self, kafka: KafkaSettings, directory: Path, rules: Path, **environment: str) -> None:
        self.port = free_port()
        self.log_path = directory / "evaluators.log"
        self._environment = (
            os.environ
            | {
                "AGENTWORLD_KAFKA_BOOTSTRAP": kafka.bootstrap,
                "AGENTWORLD_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
                "AGENTWORLD_KAFKA_PARTITIONS": str(kafka.partitions),
                "AGENTWORLD_KAFKA_TOPIC_CONFIG": json.dumps(kafka.topic_config),
                "AGENTWORLD_KAFKA_IDLE_FETCH_MS": str(kafka.idle_fetch_ms),
                "AGENTWORLD_EVALUATORS_HEALTH_PORT": str(self.port),
                "AGENTWORLD_EVALUATORS_RULES_FILE": str(rules),
                "AGENTWORLD_EVALUATORS_DATA_DIR": str(directory / "evaluators"),
            }
            | environment
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stream_processors.evaluators"],
                env=self._environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def health(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=20) as reply:
                return dict(json.load(reply))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return {"status": "down"}

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as reply:
            return str(reply.read().decode())

    def __enter__(self) -> EvaluatorProcess:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if kind is not None:
            print(self.log_path.read_text()[-6_000:])
