"""Real workers (`python -m stream_processors`) on a broker, and what they write."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from agentworld.contract.events import Event
from agentworld.contract.topics import ALL_TOPICS, TRAJECTORY_EVENTS, TopicSpec
from agentworld.platform.kafka import consumer_config, ensure_topics, topic_name
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reader import to_record
from agentworld.platform.settings import KafkaSettings
from infra.local.ports import free_port
from tests.unit.stream_processors.rollouts import read

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 90.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class WorkerProcess:
    """One worker."""

    def __init__(
        self,
        kafka: KafkaSettings,
        directory: Path,
        *,
        instance: str = "0",
        command: Sequence[str] = ("-m", "stream_processors"),
        **settings: Any,
    ) -> None:
        self.port = free_port()
        self.log_path = directory / f"worker-{instance}.log"
        values = {
            "instance": instance,
            "health_port": self.port,
            "data_dir": directory / "faust",
            "clock_interval_ms": 200,
        } | settings
        env = os.environ | {f"AGENTWORLD_PROCESSORS_{k.upper()}": str(v) for k, v in values.items()}
        env |= {
            "AGENTWORLD_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "AGENTWORLD_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
            "AGENTWORLD_KAFKA_PARTITIONS": str(kafka.partitions),
            "AGENTWORLD_KAFKA_TOPIC_CONFIG": msgspec.json.encode(kafka.topic_config).decode(),
        }
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], env=env, cwd=ROOT, stdout=log, stderr=log
            )

    def health(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return dict(msgspec.json.decode(answer.read()))
        except urllib.error.HTTPError as answer:
            return dict(msgspec.json.decode(answer.read()))
        except OSError:
            return {"status": "down"}

    def wait_ready(self, partitions: int | None = None) -> None:
        """Until it works, with that many partitions of each topic where given."""

        def ready() -> bool:
            assert self.process.poll() is None, self.log_path.read_text()
            health = self.health()
            mine = [len(have) for have in health.get("partitions", {}).values()]
            return health["status"] == "ok" and (partitions is None or mine == [partitions] * 3)

        wait_for(ready, f"worker ready: {self.log_path.read_text()}")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Poll until true; fails after a long while."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


class KafkaPlane:
    """A broker's topics with workers on them."""

    def __init__(self, kafka: KafkaSettings, directory: Path, **settings: Any) -> None:
        self.kafka = kafka
        self.directory = directory
        self.settings = settings
        self.workers: list[WorkerProcess] = []
        self._records: dict[str, list[Record]] = {}
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> KafkaPlane:
        ensure_topics(self.kafka)
        self._publisher = KafkaPublisher(self.kafka, client_id="test")
        self._consumer = self._assigned_consumer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
        self._loop.run_until_complete(self._publisher.close())
        self._loop.close()
        self._consumer.close()
        if error is not None:
            for worker in self.workers:
                print(worker.log_path.read_text()[-6_000:])

    def start_worker(self, instance: str = "0", *, wait: bool = True, **more: Any) -> WorkerProcess:
        worker = WorkerProcess(self.kafka, self.directory, instance=instance, **(self.settings | more))
        self.workers.append(worker)
        if wait:
            worker.wait_ready()
        return worker

    def publish(self, *events: Event) -> None:
        """Return when all are acknowledged."""
        self._publish(OutRecord.of(TRAJECTORY_EVENTS, event) for event in events)

    def publish_bytes(self, record: OutRecord) -> None:
        self._publish([record])

    def _publish(self, records: Any) -> None:
        async def submit() -> None:
            for ack in [self._publisher.submit(record) for record in records]:
                await ack

        self._loop.run_until_complete(submit())

    def until(self, spec: TopicSpec, kind: type[Event], count: int) -> list[Event]:
        """The events of that kind, once there are so many."""
        found: list[Event] = []

        def enough() -> bool:
            found[:] = [event for event in self.events(spec) if isinstance(event, kind)]
            return len(found) >= count

        wait_for(enough, f"{count} {kind.__name__}, but {len(found)}")
        return found

    def letters(self, spec: TopicSpec, count: int) -> list[Record]:
        wait_for(lambda: len(self.records(spec.dlq_name)) >= count, f"{count} dead letters of {spec.name}")
        return self.records(spec.dlq_name)

    def settle(self) -> None:
        """Time enough for what should not come to come."""
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            self._poll()

    def events(self, spec: TopicSpec) -> list[Event]:
        return read(spec, self.records(spec.name))

    def records(self, topic: str) -> list[Record]:
        self._poll()
        return self._records.get(topic, [])

    def _poll(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                record = to_record(message, self.kafka.topic_prefix)
                self._records.setdefault(record.topic, []).append(record)

    def _assigned_consumer(self) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(consumer_config(self.kafka, group="unused", client_id="test-reader"))
        names = [name for spec in ALL_TOPICS for name in (spec.name, spec.dlq_name)[: 1 + spec.dead_letters]]
        consumer.assign(
            [
                TopicPartition(topic_name(self.kafka, name), partition, 0)
                for name in names
                for partition in range(self.kafka.partitions or 1)
            ]
        )
        return consumer
