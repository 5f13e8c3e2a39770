"""Rows are a pure function of the record: whole prompts, aligned arrays, nothing guessed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agentworld.contract.codec import encode
from agentworld.contract.delta import expand
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import (
    BatchConsumed,
    ClockTicked,
    Event,
    Place,
    PolicyPublished,
    Reward,
    RewardAssigned,
    StepTrained,
    TrajectoryRevised,
    VerdictGiven,
)
from agentworld.contract.topics import (
    GROUPS,
    POLICY_VERSIONS,
    READY_BATCHES,
    TRAINING_EVENTS,
    TRAJECTORIES,
    TRAJECTORY_EVENTS,
    TopicSpec,
)
from agentworld.platform.log import Record
from agentworld.platform.resolved import PROMPT_UNRESOLVED
from sinks.rows.build import SOURCES, build_rows
from sinks.rows.row import Row
from tests.support import builders as b


def record_of(spec: TopicSpec, event: Event, *, offset: int = 5, timestamp_ms: int = b.T0_MS) -> Record:
    return Record(spec.name, 2, offset, b"key", encode(event), (), timestamp_ms)


def rows(spec: TopicSpec, event: Event, **at: int) -> list[Row]:
    return build_rows(record_of(spec, event, **at))


def table(found: list[Row], name: str) -> list[dict[str, Any]]:
    return [row.values for row in found if row.table == name]


def test_sealed_trajectory_gives_a_whole_row_per_step_and_one_for_itself() -> None:
    steps = b.rollout("t-1")
    found = rows(TRAJECTORIES, b.sealed(steps))
    prompts = expand(steps)
    for index, (row, step) in enumerate(zip(table(found, "steps"), steps, strict=True)):
        whole = prompts[step.step_id]
        assert row["step_index"] == index
        assert row["prompt_ids"] == list(whole.ids)
        assert len(row["prompt_ids"]) == row["prompt_tokens"]
        assert row["response_ids"] == step.response_ids
        assert len(row["logprobs"]) == row["response_tokens"]
        assert json.loads(row["messages"]) == [json.loads(message) for message in whole.messages]
        assert json.loads(row["tools"]) == json.loads(b.TOOLS)
        assert row["event_time"] == step.started_at_ms
        assert row["reward"] == 1.0
        assert row["trainable"]
    assert steps[2].prompt.base_step_id == steps[1].step_id
    (trajectory,) = table(found, "trajectories")
    assert trajectory["steps"] == 3
    assert trajectory["policy_version_min"], trajectory["policy_version_max"] == (3, 4)


def test_step_with_a_missing_base_is_stored_marked_and_without_a_guess() -> None:
    steps = b.rollout("t-1")
    found = table(rows(TRAJECTORIES, b.sealed([steps[0], steps[2]])), "steps")
    assert found[0]["prompt_ids"]
    assert found[0]["integrity"] == []
    assert found[1]["prompt_ids"] == []
    assert found[1]["messages"] == ""
    assert found[1]["integrity"] == [PROMPT_UNRESOLVED]
    assert steps[1].step_id in found[1]["integrity_detail"]
    assert not found[1]["trainable"]
    assert found[1]["response_ids"] == steps[2].response_ids


def test_step_with_a_wrong_digest_is_marked_while_its_siblings_stay_whole() -> None:
    steps = b.rollout("t-1", turns=2)
    broken = msgspec.structs.replace(
        steps[1], prompt=msgspec.structs.replace(steps[1].prompt, digest="0" * 16)
    )
    found = table(rows(TRAJECTORIES, b.sealed([steps[0], broken])), "steps")
    assert [row["integrity"] for row in found] == [[], [PROMPT_UNRESOLVED]]


def test_step_reward_is_kept_apart_from_the_trajectory_reward() -> None:
    steps = b.rollout("t-1", turns=2)
    rewards = [
        Reward(name="reward", value=0.25, step_id=steps[1].step_id, version=1),
        Reward(name="style", value=9.0, step_id=steps[0].step_id, version=1),
    ]
    found = table(rows(TRAJECTORIES, b.sealed(steps, reward=None, rewards=rewards)), "steps")
    assert [row["step_reward"] for row in found] == [None, 0.25]
    assert [row["reward"] for row in found] == [None, None]


def test_rollout_without_a_call_still_has_its_row() -> None:
    found = rows(TRAJECTORIES, b.sealed([], trajectory_id="t-0", outcome="failed", reward=None))
    assert [row.table for row in found] == ["trajectories"]
    assert found[0].values["policy_version_min"] is None


def test_captured_step_gives_a_light_row_without_payload() -> None:
    step = b.rollout("t-1")[1]
    (row,) = rows(TRAJECTORY_EVENTS, step)
    assert row.table == "captures"
    assert row.values["prompt_tokens"] == step.prompt.prompt_tokens
    assert row.values["appended_tokens"] == len(step.prompt.append_ids)
    assert not any(name in row.values for name in ("prompt_ids", "response_ids", "logprobs", "messages"))


def test_group_decision_is_both_the_newest_and_one_of_all() -> None:
    event = b.sealed(b.rollout("t-1"))
    group = b.group_ready([b.member(event, Place(topic="trajectories", partition=0, offset=1))])
    found = rows(GROUPS, group)
    assert [row.table for row in found] == ["groups", "group_decisions"]
    assert found[0].values["decision"] == "group_ready"
    assert found[0].values["trajectory_ids"] == ["t-1"]


def test_batch_row_holds_the_event_and_names_every_member() -> None:
    event = b.sealed(b.rollout("t-1"))
    place = Place(topic="trajectories", partition=3, offset=17)
    batch = b.batch_ready([b.group_ready([b.member(event, place)])])
    found = rows(READY_BATCHES, batch)
    (member,) = table(found, "batch_members")
    assert (member["place_partition"], member["place_offset"]) == (3, 17)
    (row,) = table(found, "batches")
    assert row["event"].encode() == encode(batch)


def test_rewards_verdicts_registrations_and_training_have_rows() -> None:
    stamp: dict[str, Any] = {"event_id": "e", "event_time_ms": b.T0_MS, "source": "test"}
    training: dict[str, Any] = {
        "run_id": b.RUN,
        "channel": b.CHANNEL,
        "batch_id": "b",
        "policy": "p",
        "policy_version": 4,
    }
    cases: list[tuple[TopicSpec, Event, list[str]]] = [
        (TRAJECTORY_EVENTS, b.registered("t-1"), ["registrations"]),
        (TRAJECTORY_EVENTS, ClockTicked(**stamp, partition=1), []),
        (TRAJECTORY_EVENTS, RewardAssigned(**stamp, trajectory_id="t", prompt_id="p", value=1), ["rewards"]),
        (
            TRAJECTORY_EVENTS,
            VerdictGiven(**stamp, prompt_id="p", group_id="g", decision="hold"),
            ["verdicts"],
        ),
        (TRAINING_EVENTS, StepTrained(**stamp, **training, optimizer_step=1, metrics={}), ["training_steps"]),
        (TRAINING_EVENTS, BatchConsumed(**stamp, **training, consumer="c"), ["batch_consumptions"]),
        (
            POLICY_VERSIONS,
            PolicyPublished(**stamp, policy="p", version=4, weights_uri="file:///w", digest="sha256:0"),
            ["policy_versions"],
        ),
        (
            TRAJECTORIES,
            TrajectoryRevised(
                **stamp,
                trajectory_id="t",
                prompt_id="p",
                group_id="g",
                run_id="r",
                channel="train",
                rewards=[],
                reward=0.5,
                revision=1,
            ),
            ["revisions"],
        ),
    ]
    for spec, event, tables in cases:
        assert [row.table for row in rows(spec, event)] == tables


def test_equal_records_give_equal_rows() -> None:
    event = b.sealed(b.rollout("t-1"))
    assert rows(TRAJECTORIES, event) == rows(TRAJECTORIES, event)


def test_later_record_replaces_even_when_a_broker_gave_its_offset_again() -> None:
    event = b.sealed(b.rollout("t-1"))
    old = rows(TRAJECTORIES, event, offset=900, timestamp_ms=b.T0_MS)[0].values["row_version"]
    new = rows(TRAJECTORIES, event, offset=100, timestamp_ms=b.T0_MS + 1)[0].values["row_version"]
    same_ms = rows(TRAJECTORIES, event, offset=901, timestamp_ms=b.T0_MS)[0].values["row_version"]
    assert old < same_ms < new < 2**64


def test_higher_version_of_a_decision_replaces_whenever_it_comes() -> None:
    member = b.member(b.sealed(b.rollout("t-1")), Place(topic="trajectories", partition=0, offset=1))
    first = rows(GROUPS, b.group_ready([member]), timestamp_ms=b.T0_MS + 9_000)[0].values["row_version"]
    second = rows(GROUPS, b.group_ready([member], version=2), timestamp_ms=b.T0_MS)[0].values["row_version"]
    assert first < second


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"type":"unknown"}', b"\xff\xfe"])
@pytest.mark.parametrize("spec", SOURCES, ids=lambda spec: spec.name)
def test_bytes_that_are_no_event_are_malformed(spec: TopicSpec, value: bytes) -> None:
    with pytest.raises(MalformedEvent):
        build_rows(Record(spec.name, 0, 0, None, value, (), 0))


def test_tombstone_of_a_compacted_topic_has_no_rows() -> None:
    assert build_rows(Record(POLICY_VERSIONS.name, 0, 0, b"k", None, (), 0)) == []
