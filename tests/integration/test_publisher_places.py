"""What the publisher calls acknowledged is in the log, at the place it names."""

from __future__ import annotations

import asyncio

import pytest

from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.kafka import admin_client, ensure_topics, topic_name
from agentworld.platform.log import OutRecord
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings
from tests.support.refusing_proxy import RefusingProxy


@pytest.mark.timeout(120)
async def test_a_batch_refused_before_the_next_was_taken_is_not_acknowledged_by_that(
    kafka: KafkaSettings,
) -> None:
    kafka = kafka.model_copy(update={"partitions": 1})
    await asyncio.to_thread(ensure_topics, kafka, [TRAJECTORY_EVENTS])
    topic = topic_name(kafka, TRAJECTORY_EVENTS.name)
    proxy = RefusingProxy(kafka.bootstrap, topic)
    async with proxy.running() as bootstrap:
        through = kafka.model_copy(update={"bootstrap": bootstrap})
        await asyncio.to_thread(admin_client(through).list_topics, topic)
        publisher = KafkaPublisher(through, client_id="test")
        acknowledgements = []
        for number in range(4):
            record = OutRecord(TRAJECTORY_EVENTS.name, b"p", b"%d" % number)
            acknowledgements.append(publisher.submit(record))
            async with asyncio.timeout(30):
                while proxy.requests < min(number + 1, 2):  # the first two are batches of their own
                    await asyncio.sleep(0.01)
        places = await asyncio.gather(*acknowledgements)
        await publisher.close()
    assert proxy.refusals == 1
    in_log = {
        r.offset: r.value for r in await asyncio.to_thread(lambda: list(scan_topic(kafka, TRAJECTORY_EVENTS)))
    }
    assert [in_log.get(place.offset) for place in places] == [b"0", b"1", b"2", b"3"]
