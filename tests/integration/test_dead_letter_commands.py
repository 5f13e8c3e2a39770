"""`agentworld dlq` on the embedded broker and Apache Kafka."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from agentworld.commands.dlq import app
from agentworld.commands.moments import unix_ms
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import TrajectorySealed
from agentworld.contract.topics import POLICY_VERSIONS, TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings
from tests.support.builders import rollout
from tests.unit.stream_processors.rollouts import Rollout
from tests.unit.stream_processors.running import KafkaPlane, now_ms

LIMITS: dict[str, Any] = {"grace_ms": 300, "idle_timeout_ms": 10_000}


@pytest.fixture
def point_at(monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings) -> KafkaSettings:
    """The command's environment: this broker, under a prefix that has no topics yet."""
    monkeypatch.setenv("AGENTWORLD_KAFKA_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.setenv("AGENTWORLD_KAFKA_TOPIC_PREFIX", kafka.topic_prefix)
    return kafka


def dlq(*words: str, code: int = 0, answer: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(words), input=answer)
    assert result.exit_code == code, (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def listed(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dlq("list", "--json", *words).stdout)["letters"]
    return found


async def bury(kafka: KafkaSettings, *records: tuple[OutRecord, str]) -> list[str]:
    """Publish dead letters of these records with these reasons; their places."""
    publisher = KafkaPublisher(kafka, client_id="test")
    places = []
    for out, reason in records:
        record = Record(
            topic=out.topic,
            partition=out.partition or 0,
            offset=7,
            key=out.key,
            value=out.value,
            headers=out.headers,
            timestamp_ms=0,
        )
        letter = dead_letter(record, reason=reason, detail="because [/of] that\x1b[31m", consumer="test")
        place = await publisher.publish(letter)
        assert place is not None
        places.append(f"{place.topic}/{place.partition}@{place.offset}")
    await publisher.close()
    return places


def values(kafka: KafkaSettings) -> list[bytes | None]:
    return [record.value for record in scan_topic(kafka, TRAJECTORY_EVENTS)]


def test_letters_are_listed_shown_and_replayed_once(point_at: KafkaSettings) -> None:
    assert "no dead-letter topic at all under the prefix" in dlq("list").stdout
    ensure_topics(point_at)
    assert "hold none" in dlq("list").stdout
    good = OutRecord.of(TRAJECTORY_EVENTS, rollout("t-1", turns=1)[0])
    poison = OutRecord(topic=TRAJECTORY_EVENTS.name, key=b"k", value=b"{\xff\x1b[2J")
    other = OutRecord(topic=POLICY_VERSIONS.name, key=b"p", value=b"{}")
    letters = bury(point_at, (good, "step_after_seal"), (poison, "malformed"), (other, "malformed"))
    step, bad, policy = asyncio.run(letters)

    table = dlq("list").stdout
    assert all(word in table for word in (step, bad, policy, "step_captured", "t-1", "because [/of] that"))
    assert "\x1b" not in table
    assert {letter["place"] for letter in listed()} == {step, bad, policy}
    assert listed("--limit", "1") == listed()[-1:]
    assert {letter["place"] for letter in listed("--topic", "policy-versions")} == {policy}
    assert {letter["place"] for letter in listed("--reason", "malformed", "--since", "1h")} == {bad, policy}
    assert listed("--since", "2100-01-01") == []
    assert json.loads(dlq("list", "--json").stdout)["reasons"] == {"malformed": 2, "step_after_seal": 1}
    assert "no dead letter matches reason nope" in dlq("list", "--reason", "nope").stdout

    shown = dlq("show", step).stdout
    assert all(word in shown for word in ("step_after_seal", "'prompt_id': 'task-1'", "dlq-consumer: test"))
    assert json.loads(dlq("show", step, "--json").stdout)["event"] == json.loads(good.value)
    shown = dlq("show", bad).stdout
    assert "not an event" in shown
    assert "\x1b" not in shown
    assert set(json.loads(dlq("show", bad, "--json").stdout)["value"]) == {"base64"}

    dry = dlq("replay", "--dry-run", "--topic", "trajectory-events", code=1).stdout
    assert "1 would replay, 1 refused" in dry
    dlq("replay", "--topic", "trajectory-events", answer="n\n", code=1)
    assert values(point_at) == []
    assert "--force" in dlq("replay", "--yes", bad, code=1).stdout
    assert "1 replayed" in dlq("replay", step, answer="y\n").stdout
    assert values(point_at) == [good.value]
    [replayed] = [letter for letter in listed() if letter["replayed"]]
    assert (replayed["place"], replayed["replayed"]["to"][:17]) == (step, "trajectory-events")
    again = dlq("replay", step).stdout
    assert "1 already replayed" in again
    assert "--again" in again
    assert values(point_at) == [good.value]
    dlq("replay", "--yes", "--again", step)
    dlq("replay", "--yes", "--force", bad)
    assert sorted(map(bytes, filter(None, values(point_at)))) == sorted(
        [good.value, good.value, poison.value]
    )

    assert (
        f"no dead letter stands at {step.split('@')[0]}@99"
        in dlq("show", step.split("@")[0] + "@99", code=2).stderr
    )
    assert "no dead letter matches reason nope" in dlq("replay", "--reason", "nope", code=2).stderr


@pytest.mark.parametrize(
    "words", [["list"], ["show", "trajectory-events-dlq/0@1"], ["replay"], ["replay", "groups-dlq/0@1"]]
)
def test_broker_away_is_one_line_and_exit_code_1(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTWORLD_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert "127.0.0.1:1" in dlq(*words, code=1).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list", "--topic", "nope"], "those that have: trajectory-events"),
        (["list", "--since", "yesterday"], "neither a duration"),
        (["show", "trajectory-events/0@1"], "not the place of a dead letter"),
        (["show", "nope-dlq/0@1"], "no topic 'nope-dlq'"),
        (["replay", "trajectory-events-dlq/0@1", "--reason", "malformed"], "not both"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(words: Sequence[str], told: str) -> None:
    assert told in dlq(*words, code=2).stderr


def test_since_takes_durations_and_iso_times() -> None:
    now = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    midnight_ms = int(now.timestamp() * 1000)
    assert unix_ms("90s", now=now) == midnight_ms - 90_000
    assert unix_ms("1w", now=now) == midnight_ms - 7 * 86_400_000
    assert unix_ms("2026-01-02", now=now) == midnight_ms
    assert unix_ms("2026-01-02T02:00+02:00", now=now) == midnight_ms
    for text in ("", "h", "1y", "-1h", "2026-13-01", "٣x"):
        with pytest.raises(InvalidInput):
            unix_ms(text, now=now)


def test_an_unknown_trajectory_seals_once_it_is_registered_and_its_letters_replayed(
    point_at: KafkaSettings, tmp_path: Path
) -> None:
    with KafkaPlane(point_at, tmp_path, **LIMITS) as plane:
        plane.start_worker()
        unknown = Rollout("late", "p", start_ms=now_ms())
        plane.publish(*unknown.steps(2), unknown.completed())
        plane.letters(TRAJECTORY_EVENTS, 3)
        assert {letter["reason"] for letter in listed()} == {"unknown_trajectory"}
        plane.publish(unknown.registered())
        told = dlq("replay", "--yes", "--reason", "unknown_trajectory").stdout
        assert "3 replayed" in told
        [sealed] = plane.until(TRAJECTORIES, TrajectorySealed, 1)
        assert isinstance(sealed, TrajectorySealed)
        assert (sealed.trajectory_id, sealed.outcome, len(sealed.steps)) == ("late", "succeeded", 2)
        assert [letter["replayed"] is not None for letter in listed()] == [True] * 3
