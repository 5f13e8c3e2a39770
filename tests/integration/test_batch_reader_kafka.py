"""`agentworld batches` and the batch reader over both brokers."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from agentworld.commands.batches import app
from agentworld.contract.delta import expand
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batches import BatchReader, tail
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.reader import KafkaPlaceReader, KafkaReader
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings
from tests.support import builders as b
from tests.support.produce import produce_batches

AWAY = "http://127.0.0.1:1"


@pytest.fixture
def point_at(monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings) -> KafkaSettings:
    """The command's environment: this broker, no ClickHouse."""
    monkeypatch.setenv("AGENTWORLD_KAFKA_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.setenv("AGENTWORLD_KAFKA_TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("AGENTWORLD_CLICKHOUSE_URL", AWAY)
    ensure_topics(kafka)
    return kafka


async def test_batches_resolve_from_the_broker_token_by_token(kafka: KafkaSettings) -> None:
    ensure_topics(kafka)
    batches = await produce_batches(kafka, 2)
    places = KafkaPlaceReader(kafka, TRAJECTORIES, client_id="test-places")
    reader = BatchReader(places, lambda: scan_topic(kafka, READY_BATCHES))
    try:
        assert reader.list() == batches
        resolved = reader.resolve(reader.find(batches[1].batch_id))
    finally:
        places.close()
    for trajectory in resolved.trajectories:
        steps = b.rollout(trajectory.trajectory_id, trajectory.prompt_id)
        prompts = expand(steps)
        assert [step.prompt_ids for step in trajectory.steps] == [
            list(prompts[step.step_id].ids) for step in steps
        ]
        assert [step.logprobs for step in trajectory.steps] == [step.response_logprobs for step in steps]


async def test_consumer_group_goes_on_after_what_it_committed(kafka: KafkaSettings) -> None:
    ensure_topics(kafka)
    batches = await produce_batches(kafka, 2)

    def trainer() -> KafkaReader:
        return KafkaReader(
            kafka, [READY_BATCHES], group=f"{kafka.topic_prefix}trainer", client_id="t", instance_id="t"
        )

    reader = trainer()
    assert next(tail(reader)) == batches[0]
    reader.commit()
    reader.close()
    again = trainer()
    assert next(tail(again)) == batches[1]
    again.close()


async def test_show_and_tail_print_what_is_there(point_at: KafkaSettings) -> None:
    (batch,) = await produce_batches(point_at, 1)
    listed = CliRunner().invoke(app, ["tail"])
    assert listed.exit_code == 0, listed.output
    assert batch.batch_id in listed.output
    shown = CliRunner().invoke(app, ["show", batch.batch_id, "--tokens"])
    assert shown.exit_code == 0, shown.output
    assert "t-0-0-1, last_answer: the only branch" in shown.output
    assert "cmpl-2" in shown.output
    whole = CliRunner().invoke(app, ["show", batch.batch_id, "--json"])
    found = json.loads(whole.stdout)
    assert [group["group_id"] for group in found["groups"]] == [group.group_id for group in batch.groups]
    step = found["groups"][0]["trajectories"][0]["steps"][0]
    assert len(step["response_ids"]) == len(step["logprobs"])
    assert (step["trained"], step["parent_step_id"], step["engine_request_id"]) == (True, None, "cmpl-0")


async def test_unknown_batch_is_one_line_and_exit_code_1(point_at: KafkaSettings) -> None:
    result = CliRunner().invoke(app, ["show", "nope"])
    assert result.exit_code == 1
    assert "error: no batch has the id 'nope'" in result.stderr


@pytest.mark.parametrize("command", [["tail"], ["tail", "--follow"], ["show", "x"]])
def test_broker_away_is_one_line_and_exit_code_1(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTWORLD_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("AGENTWORLD_CLICKHOUSE_URL", AWAY)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.output
