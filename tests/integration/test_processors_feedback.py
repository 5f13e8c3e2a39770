"""What the trainer says reaches every log that decides, whatever its topics' partitions and whoever dies."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from agentworld.contract.events import BatchConsumed, Event, PolicyPublished
from agentworld.contract.topics import (
    GROUPS,
    POLICY_VERSIONS,
    TRAINING_EVENTS,
    TRAJECTORIES,
    TopicSpec,
)
from agentworld.platform.kafka import admin_client, topic_name
from agentworld.platform.log import OutRecord
from agentworld.platform.settings import KafkaSettings
from tests.support.trainer_words import consumed, published
from tests.unit.stream_processors.running import KafkaPlane, now_ms, wait_for


def _version(number: int) -> PolicyPublished:
    return published(number, at_ms=now_ms())


def _consumed(name: str) -> BatchConsumed:
    return consumed(name, at_ms=now_ms())


def _say(plane: KafkaPlane, spec: TopicSpec, event: Event) -> None:
    plane.publish_bytes(OutRecord.of(spec, event))


def _wait_for_versions(plane: KafkaPlane, spec: TopicSpec, *versions: PolicyPublished) -> None:
    """Until every partition has them all; a worker that was killed may have said some twice."""
    expected = {
        (partition, event.event_id) for event in versions for partition in range(plane.kafka.partitions or 0)
    }

    def said() -> set[tuple[int, str]]:
        return {
            (record.partition, headers["event_id"].decode())
            for record in plane.records(spec.name)
            if (headers := dict(record.headers)).get("type") == b"policy_published"
        }

    wait_for(lambda: said() == expected, f"{len(versions)} versions on each partition of {spec.name}")


def _wait_for_consumed(plane: KafkaPlane, *names: str) -> None:
    expected = {_consumed(name).event_id for name in names}
    wait_for(
        lambda: {e.event_id for e in plane.events(GROUPS) if isinstance(e, BatchConsumed)} == expected,
        f"{names} on {GROUPS.name}",
    )


def test_versions_reach_every_partition_and_consumed_batches_theirs(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Topics of the trainer need not have as many partitions as those of the processors."""
    partitions = kafka.partitions or 0
    assert partitions > 1
    admin = admin_client(kafka)
    sizes = {POLICY_VERSIONS: 1, TRAINING_EVENTS: partitions - 1}
    topics = [NewTopic(topic_name(kafka, spec.name), count, 1) for spec, count in sizes.items()]
    for created in admin.create_topics(topics).values():
        created.result(30)
    with KafkaPlane(kafka, tmp_path) as plane:
        _say(plane, POLICY_VERSIONS, _version(1))
        plane.publish_bytes(
            OutRecord(POLICY_VERSIONS.name, key=b"gone", value=b"", partition=0, tombstone=True)
        )
        plane.publish_bytes(OutRecord(POLICY_VERSIONS.name, key=b"x", value=b"{broken", partition=0))
        first = plane.start_worker()
        _say(plane, TRAINING_EVENTS, _consumed("b0"))
        _wait_for_consumed(plane, "b0")
        for spec in (GROUPS, TRAJECTORIES):
            _wait_for_versions(plane, spec, _version(1))
        assert len(plane.letters(POLICY_VERSIONS, 1)) == 1
        first.kill()
        _say(plane, POLICY_VERSIONS, _version(2))
        _say(plane, TRAINING_EVENTS, _consumed("b1"))
        plane.start_worker()
        _wait_for_consumed(plane, "b0", "b1")
        for spec in (GROUPS, TRAJECTORIES):
            _wait_for_versions(plane, spec, _version(1), _version(2))
