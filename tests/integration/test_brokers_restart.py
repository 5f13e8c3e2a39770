"""Clients outlive their broker: publishers and readers go on when it comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reader import KafkaReader
from infra.kafka.apache import ApacheKafka
from infra.local.broker import LocalBroker
from infra.local.embedded_broker import EmbeddedBroker


@pytest.fixture(params=[EmbeddedBroker, pytest.param(ApacheKafka, marks=pytest.mark.apache)])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBroker]:
    launcher: LocalBroker = request.param(tmp_path / "data", tmp_path / "broker.log")
    launcher.start()
    yield launcher
    launcher.kill()


def _records(tag: str, count: int) -> list[OutRecord]:
    return [
        OutRecord(topic=TRAJECTORY_EVENTS.name, key=b"%d" % i, value=f"{tag}-{i}".encode())
        for i in range(count)
    ]


@pytest.mark.chaos
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_publisher_and_a_reader_go_on_after_the_broker_returns(
    broker: LocalBroker, how: Literal["stop", "kill"]
) -> None:
    settings = broker.settings(partitions=4)
    ensure_topics(settings)
    publisher = KafkaPublisher(settings, client_id="outlives", delivery_timeout_ms=60_000)
    reader = KafkaReader(settings, [TRAJECTORY_EVENTS], group="g", client_id="outlives", instance_id="r-0")

    async def publish(records: list[OutRecord]) -> None:
        assert all(await asyncio.gather(*map(publisher.publish, records)))

    def read_until(wanted: set[bytes]) -> None:
        missing, deadline = set(wanted), time.monotonic() + 60
        while missing and time.monotonic() < deadline:
            missing -= {record.value for record in reader.poll(timeout_s=0.5) if record.value}
        assert not missing

    await publish(_records("before", 50))
    read_until({record.value for record in _records("before", 50)})
    reader.commit()
    during = asyncio.create_task(publish(_records("during", 50)))
    await asyncio.to_thread(broker.stop if how == "stop" else broker.kill)
    await asyncio.to_thread(broker.start)
    ensure_topics(settings)
    await during
    for number in range(3):
        await publish(_records(f"after{number}", 50))
    await publisher.close()
    reader.close()
    # A reader that starts from the broker's state sees all that was acknowledged after its return.
    reader = KafkaReader(settings, [TRAJECTORY_EVENTS], group="g", client_id="outlives", instance_id="r-0")
    read_until({record.value for number in range(3) for record in _records(f"after{number}", 50)})
    reader.commit()
    reader.close()
