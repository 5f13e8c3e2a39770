"""The sink against the real engine: exactly once in effect, poison singled out, outages waited for."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from agentworld.contract.delta import expand
from agentworld.contract.errors import ContractViolation, IntegrityError, Unavailable
from agentworld.contract.events import (
    BatchConsumed,
    BatchReady,
    Event,
    GroupRejected,
    PolicyPublished,
    RewardAssigned,
    RolloutsConflicted,
    RolloutWanted,
    StepTrained,
    TrainedBranch,
    TrajectoryRevised,
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
from agentworld.platform.batch_archive import BatchArchive
from agentworld.platform.batches import BatchReader
from agentworld.platform.clickhouse import connect
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.resolved import resolve_sealed
from agentworld.platform.settings import ClickHouseSettings
from sinks.health import Health
from sinks.rows.build import SOURCES
from sinks.schema import Migration, migrate, shipped_migrations
from sinks.settings import SinkSettings
from sinks.sink import CONSUMER, Sink
from sinks.writer import ClickHouseWriter
from tests.contract.examples import all_examples, sealed_tree
from tests.support import builders as b


@pytest.fixture
def tables(clickhouse: ClickHouseSettings) -> Client:
    migrate(clickhouse)
    return connect(clickhouse)


def make_sink(log: InMemoryLog, clickhouse: ClickHouseSettings, *, group: str = CONSUMER) -> Sink:
    return Sink(
        SinkSettings(batch_ms=0, batch_rows=500, retry_max_ms=20),
        reader=log.reader(SOURCES, group=group),
        writer=ClickHouseWriter(lambda: connect(clickhouse)),
        publisher=log.publisher(),
        health=Health({}),
        stop=asyncio.Event(),
    )


async def drain(sink: Sink) -> None:
    while await sink.advance():
        pass


def put(log: InMemoryLog, spec: TopicSpec, event: Event) -> None:
    log.append(OutRecord.of(spec, event))


def fill(log: InMemoryLog, tasks: int = 3) -> BatchReady:
    """`tasks` groups of two rollouts, all the way to a batch."""
    groups = []
    for task in range(tasks):
        prompt_id = f"task-{task}"
        members = []
        for rollout in range(2):
            name = f"t-{task}-{rollout}"
            steps = b.rollout(name, prompt_id)
            put(log, TRAJECTORY_EVENTS, b.registered(name, prompt_id))
            for step in steps:
                put(log, TRAJECTORY_EVENTS, step)
            event = b.sealed(steps, prompt_id=prompt_id, reward=float(rollout))
            members.append(b.member(event, log.append(OutRecord.of(TRAJECTORIES, event))))
        groups.append(b.group_ready(members, prompt_id))
        put(log, GROUPS, groups[-1])
    batch = b.batch_ready(groups)
    put(log, READY_BATCHES, batch)
    return batch


def one(client: Client, sql: str) -> Any:
    return client.query(sql).result_rows[0][0]


async def test_redelivered_records_double_raw_rows_and_never_what_final_shows(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    fill(memory_log)
    await drain(make_sink(memory_log, clickhouse))
    await drain(make_sink(memory_log, clickhouse, group="as after a crash before the commit"))
    expected = {"steps": 18, "captures": 18, "trajectories": 6, "registrations": 6}
    expected |= {"groups": 3, "group_decisions": 3, "batches": 1, "batch_members": 6}
    for table, rows in expected.items():
        assert one(tables, f"SELECT count() FROM {table} FINAL") == rows, table
        assert one(tables, f"SELECT count() FROM {table}") in (rows, 2 * rows), table
    assert one(tables, "SELECT count() FROM steps_final") == 18


async def test_the_drift_ledger_counts_each_class_once_per_run(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    steps = b.rollout("t-0-0", "task-0")
    event = b.sealed(steps, prompt_id="task-0", reward=1.0)
    classes = [("root", False), ("extends", False), ("rewritten", True)]
    placed = [
        msgspec.structs.replace(p, relation=relation, superseded=superseded, parent_step_id=steps[0].step_id)
        for p, (relation, superseded) in zip(event.steps, classes, strict=True)
    ]
    trained = TrainedBranch(tip_step_id=steps[1].step_id, steps=2, rule="a_rule", reason="")
    for _ in range(2):
        put(
            memory_log,
            TRAJECTORIES,
            msgspec.structs.replace(event, steps=placed, trained_branch=trained),
        )
    await drain(make_sink(memory_log, clickhouse))
    ledger = tables.query("SELECT root, extends, rewritten, superseded, steps FROM drift_ledger").result_rows
    assert ledger == [(1, 1, 0, 1, 3)]
    stored = tables.query("SELECT trained_tip_step_id, trained_by FROM trajectories_final").result_rows
    assert stored == [(steps[1].step_id, "a_rule")]
    assert one(tables, "SELECT countIf(parent_step_id != '') FROM steps_final") == 3


async def test_stored_step_is_whole_and_token_exact(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    fill(memory_log, 1)
    await drain(make_sink(memory_log, clickhouse))
    steps = b.rollout("t-0-1", "task-0")
    prompts = expand(steps)
    rows = tables.query(
        "SELECT step_id, prompt_ids, response_ids, logprobs, reward, prompt_tokens, length(prompt_ids), "
        "toUnixTimestamp64Milli(event_time) FROM steps_final "
        "WHERE trajectory_id = 't-0-1' ORDER BY step_index"
    ).result_rows
    assert [row[0] for row in rows] == [step.step_id for step in steps]
    for row, step in zip(rows, steps, strict=True):
        assert row[1] == list(prompts[step.step_id].ids)
        assert row[2] == step.response_ids
        assert row[3] == step.response_logprobs
        assert row[4] == 1.0
        assert row[5] == row[6]
        assert row[7] == step.started_at_ms


async def test_newest_decision_reward_and_revision_win(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    batch = fill(memory_log, 1)
    members = batch.groups[0].members
    put(memory_log, GROUPS, b.group_ready(members, "task-0", version=2))
    stamp: dict[str, Any] = {"event_time_ms": b.T0_MS + 99_000, "source": "test"}
    for version, value in ((2, 0.9), (1, 0.1)):
        reward = RewardAssigned(
            **stamp, event_id=f"e{version}", trajectory_id="t-0-0", prompt_id="task-0", value=value,
            version=version,
        )  # fmt: skip
        put(memory_log, TRAJECTORY_EVENTS, reward)
    revised = TrajectoryRevised(
        **stamp, event_id="e3", trajectory_id="t-0-0", prompt_id="task-0", group_id=batch.groups[0].group_id,
        run_id=b.RUN, channel=b.CHANNEL, rewards=[], reward=0.9, revision=1,
    )  # fmt: skip
    put(memory_log, TRAJECTORIES, revised)
    await drain(make_sink(memory_log, clickhouse))
    assert one(tables, "SELECT version FROM groups_final") == 2
    assert one(tables, "SELECT count() FROM group_decisions FINAL") == 2
    assert one(tables, "SELECT value FROM rewards FINAL") == 0.9
    rewards = tables.query("SELECT trajectory_id, reward FROM trajectories_final ORDER BY 1").result_rows
    assert rewards == [("t-0-0", 0.9), ("t-0-1", 1.0)]
    assert one(tables, "SELECT any(reward) FROM steps_final WHERE trajectory_id = 't-0-0'") == 0.9


async def test_lineage_shows_what_was_trained_and_what_is_known_now(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    batch = fill(memory_log)
    group = batch.groups[0]
    revised = group.members[0].trajectory_id
    put(
        memory_log,
        TRAJECTORIES,
        TrajectoryRevised(
            event_id="r1",
            event_time_ms=b.T0_MS + 90_000,
            source="test",
            trajectory_id=revised,
            prompt_id=group.prompt_id,
            group_id=group.group_id,
            run_id=batch.run_id,
            channel=batch.channel,
            rewards=[],
            reward=-3.0,
            revision=1,
        ),
    )
    put(
        memory_log,
        TRAINING_EVENTS,
        BatchConsumed(
            event_id="c1",
            event_time_ms=b.T0_MS + 80_000,
            source="test",
            batch_id=batch.batch_id,
            run_id=batch.run_id,
            channel=batch.channel,
            consumer="verl-0",
            policy="default",
            policy_version=5,
        ),
    )
    decision = b.group_ready(group.members, group.prompt_id, version=2)
    rejected = {name: getattr(decision, name) for name in decision.__struct_fields__} | {"event_id": "x"}
    put(memory_log, GROUPS, GroupRejected(**rejected))
    await drain(make_sink(memory_log, clickhouse))
    rows = tables.query(
        "SELECT trajectory_id, trained_reward, newest_reward, reward_changed, trained_version, "
        "newest_version, decision, consumer, policy_version FROM lineage "
        "WHERE group_id = {g:String} ORDER BY trajectory_id",
        parameters={"g": group.group_id},
    ).result_rows
    assert len(rows) == len(group.members)
    by_id = {row[0]: row[1:] for row in rows}
    trained = {member.trajectory_id: member.reward for member in group.members}
    for trajectory_id, row in by_id.items():
        changed = trajectory_id == revised
        newest = -3.0 if changed else trained[trajectory_id]
        assert row == (trained[trajectory_id], newest, changed, 1, 2, "group_rejected", "verl-0", 5)


async def test_what_groups_asked_for_is_stored(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    for event in all_examples()["groups"]:
        if isinstance(event, RolloutWanted | RolloutsConflicted):
            put(memory_log, GROUPS, event)
            put(memory_log, GROUPS, event)
    await drain(make_sink(memory_log, clickhouse))
    rows = tables.query("SELECT notice, reason FROM group_notices FINAL ORDER BY notice").result_rows
    assert [row[0] for row in rows] == ["rollout_wanted", "rollouts_conflicted"]
    assert rows[1][1] == "registered with n = 8"


async def test_what_the_trainer_did_is_stored(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    stamp: dict[str, Any] = {"event_time_ms": b.T0_MS, "source": "trainer"}
    put(
        memory_log,
        POLICY_VERSIONS,
        PolicyPublished(
            **stamp, event_id="p", policy="default", version=4, weights_uri="w", digest="sha256:0"
        ),
    )
    put(
        memory_log,
        TRAINING_EVENTS,
        StepTrained(
            **stamp,
            event_id="s",
            batch_id="b",
            run_id=b.RUN,
            channel=b.CHANNEL,
            policy="default",
            policy_version=4,
            optimizer_step=7,
            metrics={"loss": 0.5},
        ),
    )
    await drain(make_sink(memory_log, clickhouse))
    assert one(tables, "SELECT version FROM policy_versions FINAL") == 4
    assert one(tables, "SELECT metrics['loss'] FROM training_steps FINAL") == 0.5


@pytest.mark.parametrize("time_ms", [2**62, 10**14], ids=["client refuses", "server refuses"])
async def test_only_the_refused_record_is_dead_lettered(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client, time_ms: int
) -> None:
    fill(memory_log)
    poison = b.rollout("t-poison", "task-x", turns=1)[0]
    put(memory_log, TRAJECTORY_EVENTS, msgspec.structs.replace(poison, started_at_ms=4 * time_ms))
    await drain(make_sink(memory_log, clickhouse))
    (letter,) = memory_log.records(TRAJECTORY_EVENTS.dlq_name)
    assert dict(letter.headers)["dlq-reason"] == b"clickhouse_refused"
    assert b"t-poison" in (letter.value or b"")
    assert one(tables, "SELECT count() FROM captures FINAL") == 18
    assert one(tables, "SELECT count() FROM steps FINAL") == 18


async def test_missing_table_is_waited_for_and_loses_nothing(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    fill(memory_log, 1)
    tables.command("RENAME TABLE steps TO steps_away")
    advancing = asyncio.create_task(make_sink(memory_log, clickhouse).advance())
    while one(tables, "SELECT count() FROM captures") == 0:
        await asyncio.sleep(0.05)
    assert not advancing.done()
    tables.command("RENAME TABLE steps_away TO steps")
    await advancing
    assert one(tables, "SELECT count() FROM steps FINAL") == 6
    assert memory_log.records(TRAJECTORIES.dlq_name) == []


async def test_expired_trajectories_resolve_from_clickhouse_to_the_same(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    batch = fill(memory_log)
    await drain(make_sink(memory_log, clickhouse))
    archive = BatchArchive(tables)
    reader = BatchReader(memory_log, lambda: [], archive)
    assert reader.find(batch.batch_id) == batch
    assert reader.list(run_id=b.RUN) == [batch]
    from_log = reader.resolve(batch)
    for partition in range(memory_log.partitions):
        memory_log.expire(TRAJECTORIES.name, partition, 10**6)
    from_archive = reader.resolve(batch)
    for log, stored in zip(from_log.trajectories, from_archive.trajectories, strict=True):
        assert (log.read_from, stored.read_from) == ("log", "clickhouse")
        assert dataclasses.replace(stored, read_from="log") == log


async def test_the_tree_and_what_trains_are_the_same_from_log_and_clickhouse(
    memory_log: InMemoryLog, clickhouse: ClickHouseSettings, tables: Client
) -> None:
    event = sealed_tree()
    member = b.member(event, memory_log.append(OutRecord.of(TRAJECTORIES, event)))
    await drain(make_sink(memory_log, clickhouse))
    log, stored = resolve_sealed(event, member), BatchArchive(tables).trajectory(member)
    assert stored is not None
    assert dataclasses.replace(stored, read_from="log") == log
    assert list(stored.branches) == event.branches
    assert stored.trained_branch == event.trained_branch
    assert [step.parent_step_id for step in stored.steps] == [p.parent_step_id for p in event.steps]
    assert [step.trained for step in stored.steps] == [True, False, True, False, False, False]
    assert {step.engine_request_id for step in stored.steps} == {"chatcmpl-1"}


async def test_trajectory_that_nobody_has_is_named(memory_log: InMemoryLog, tables: Client) -> None:
    batch = fill(memory_log, 1)
    for partition in range(memory_log.partitions):
        memory_log.expire(TRAJECTORIES.name, partition, 10**6)
    with pytest.raises(IntegrityError, match=r"2 of 2 .*t-0-0.*not in ClickHouse either"):
        BatchReader(memory_log, lambda: [], BatchArchive(tables)).resolve(batch)


def test_migrations_run_once_and_an_edited_one_is_refused(clickhouse: ClickHouseSettings) -> None:
    shipped = shipped_migrations()
    assert migrate(clickhouse) == [migration.name for migration in shipped]
    assert migrate(clickhouse) == []
    edited = [Migration(shipped[0].number, shipped[0].name, shipped[0].sql + "-- edited\n")]
    with pytest.raises(ContractViolation, match=r"0001_steps\.sql differs"):
        migrate(clickhouse, edited)


def test_database_is_made_where_there_is_none(clickhouse: ClickHouseSettings) -> None:
    client = connect(clickhouse)
    client.command(f"DROP DATABASE {clickhouse.database} SYNC")
    assert migrate(clickhouse)


def test_clickhouse_that_is_away_is_unavailable_with_its_address() -> None:
    away = ClickHouseSettings(url="http://127.0.0.1:1", connect_timeout_s=1)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        migrate(away)


def test_every_column_of_a_table_says_what_it_is_or_speaks_for_itself(tables: Client) -> None:
    rows = tables.query("SELECT name, comment FROM system.columns WHERE database = currentDatabase() "
                        "AND table = 'steps' AND name LIKE '%tokens'").result_rows  # fmt: skip
    assert rows
    assert all(comment for _, comment in rows)
