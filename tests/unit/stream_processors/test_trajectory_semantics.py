"""What the trajectory processor does with a rollout's events, without a broker."""

from __future__ import annotations

import msgspec
import pytest

from agentworld.contract.events import DirectoryUpdated, Event, TrajectoryRevised, TrajectorySealed
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_DIRECTORY, TRAJECTORY_EVENTS
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.metrics import counter
from stream_processors.pipeline import Pipeline
from stream_processors.rules import Rules
from tests.support.rules import rules as limits
from tests.unit.stream_processors.rollouts import T0_MS, Rollout, read

RULES = limits(grace_ms=1_000, idle_timeout_ms=20_000, closed_ttl_ms=60_000)
DLQ = TRAJECTORY_EVENTS.dlq_name


class Bench:
    def __init__(self, rules: Rules = RULES) -> None:
        self.log = InMemoryLog(partitions=1)
        self.pipeline = Pipeline(self.log, rules)
        self.now_ms = T0_MS

    def feed(self, *events: Event) -> None:
        for event in events:
            self.log.append(OutRecord.of(TRAJECTORY_EVENTS, event))
        self.pipeline.run()

    def wait(self, log_ms: int) -> None:
        """Let log time pass, a tick a second."""
        for _ in range(0, log_ms, 1_000):
            self.now_ms += 1_000
            self.pipeline.tick(self.now_ms)

    def sealed(self) -> list[TrajectorySealed]:
        return [e for e in self.out() if isinstance(e, TrajectorySealed)]

    def out(self) -> list[Event]:
        return [
            e
            for e in read(TRAJECTORIES, self.log.records(TRAJECTORIES.name))
            if e.source != "stream-processors.clock"
        ]

    def letters(self) -> list[tuple[str, Record]]:
        return [(dict(r.headers)["dlq-reason"].decode(), r) for r in self.log.records(DLQ)]

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.letters()]


def ids(sealed: TrajectorySealed) -> list[str]:
    return [entry.step.step_id for entry in sealed.steps]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_completed_rollout_is_sealed_in_order_after_its_grace(bench: Bench) -> None:
    r = Rollout("t", "p")
    first, second, third = r.steps(3)
    bench.feed(r.registered(), first, r.completed(), r.reward(0.5), third)
    assert bench.sealed() == []
    bench.feed(second)
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert ids(sealed) == [first.step_id, second.step_id, third.step_id]
    assert [entry.relation for entry in sealed.steps] == ["root", "extends", "extends"]
    assert (sealed.outcome, sealed.seal_reason, sealed.reward) == ("succeeded", "completed", 0.5)
    assert sealed.integrity.clean
    [entry] = read(TRAJECTORY_DIRECTORY, bench.log.records(TRAJECTORY_DIRECTORY.name))
    assert isinstance(entry, DirectoryUpdated)
    assert entry.state == "sealed"


def test_a_rollout_without_steps_seals_too(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(r.registered(), r.completed("failed"))
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert (sealed.steps, sealed.outcome, sealed.reward) == ([], "failed", None)


def test_an_idle_rollout_is_sealed_as_abandoned(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(r.registered(), *r.steps(1))
    bench.wait(19_000)
    assert bench.sealed() == []
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert (sealed.outcome, sealed.seal_reason) == ("abandoned", "idle_timeout")
    assert bench.pipeline.open_counts()["trajectory"] == 0


def test_an_outage_of_everything_expires_nothing(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(r.registered())
    bench.now_ms += 24 * 3_600_000
    bench.wait(1_000)
    assert bench.sealed() == []


def test_events_that_come_before_their_registration_wait_for_it(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(*r.steps(2), r.completed(), r.reward(1.0))
    bench.wait(5_000)
    assert bench.sealed() == []
    bench.feed(r.registered())
    bench.wait(2_000)
    [sealed] = bench.sealed()
    assert len(sealed.steps) == 2
    assert bench.reasons() == []


def test_what_is_never_registered_goes_to_the_dead_letters_with_its_bytes(bench: Bench) -> None:
    r = Rollout("t", "p")
    step = r.steps(1)[0]
    bench.feed(step, r.completed(), r.reward(1.0))
    bench.wait(25_000)
    assert bench.sealed() == []
    assert bench.reasons() == ["unknown_trajectory"] * 3
    assert read(TRAJECTORY_EVENTS, [bench.letters()[0][1]]) == [step]
    assert bench.pipeline.stored()["trajectory"] == [("clock",)]


def test_another_prompt_for_a_registered_trajectory_is_refused(bench: Bench) -> None:
    r, foreign = Rollout("t", "p"), Rollout("t", "other")
    bench.feed(
        r.registered(), foreign.step(7), foreign.reward(1.0), foreign.completed(), foreign.registered()
    )
    assert bench.reasons() == ["prompt_mismatch"] * 4
    bench.feed(r.completed())
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert (sealed.steps, sealed.reward, sealed.prompt_id) == ([], None, "p")


def test_a_step_of_another_prompt_that_came_first_is_refused_at_registration(bench: Bench) -> None:
    r, foreign = Rollout("t", "p"), Rollout("t", "other")
    bench.feed(foreign.step(7), r.step(0), r.registered(), r.completed())
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert ids(sealed) == [r.step(0).step_id]
    assert bench.reasons() == ["prompt_mismatch"]


def test_the_clients_registration_counts_before_one_the_gateway_implied(bench: Bench) -> None:
    r = Rollout("t", "p")
    implied = r.registered(registered_by="gateway", rollouts=1, event_id="g", metadata={})
    bench.feed(implied, r.registered(event_time_ms=T0_MS + 9, metadata={"k": 1}), implied, r.completed())
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert (sealed.rollouts, sealed.metadata) == (2, {"k": 1})


def test_duplicates_change_nothing_before_or_after_the_seal(bench: Bench) -> None:
    events = Rollout("t", "p").whole()
    bench.feed(*events, *events)
    bench.wait(3_000)
    before = bench.out()
    bench.feed(*events)
    bench.wait(3_000)
    assert bench.out() == before
    assert bench.reasons() == []
    assert len(bench.sealed()[0].steps) == 3


def test_a_new_step_after_the_seal_is_refused_once(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(*r.whole(1))
    bench.wait(3_000)
    bench.feed(r.step(5), r.step(5))
    assert bench.reasons() == ["step_after_seal"]


def test_a_completion_after_an_idle_seal_is_refused_once(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(r.registered())
    bench.wait(25_000)
    bench.feed(r.completed(), r.completed())
    assert bench.reasons() == ["completion_after_seal"]


def test_a_reward_after_the_seal_revises_and_an_older_one_does_not(bench: Bench) -> None:
    r = Rollout("t", "p")
    bench.feed(*r.whole(1, reward=None))
    bench.wait(3_000)
    bench.feed(
        r.reward(0.7, version=2), r.reward(0.1, version=1), r.reward(0.7, version=2), r.reward(0.9, version=3)
    )
    revised = [e for e in bench.out() if isinstance(e, TrajectoryRevised)]
    assert [(e.revision, e.reward) for e in revised] == [(1, 0.7), (2, 0.9)]
    assert len({e.event_id for e in revised}) == 2


def test_step_rewards_are_summed_where_the_trajectory_has_none(bench: Bench) -> None:
    r = Rollout("t", "p")
    one, two = r.steps(2)
    bench.feed(
        r.registered(),
        one,
        two,
        r.reward(0.25, step_id=one.step_id),
        r.reward(0.5, step_id=two.step_id),
        r.reward(9.0, name="style"),
        r.completed(),
    )
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert sealed.reward == 0.75
    assert [(reward.name, reward.value) for reward in sealed.rewards if reward.name == "style"] == [
        ("style", 9.0)
    ]


def test_faults_of_steps_stand_in_the_integrity_report(bench: Bench) -> None:
    r = Rollout("t", "p")
    lost, second = r.steps(2)
    bench.feed(
        r.registered(),
        second,
        r.step(2, status="failed", response_ids=[], response_logprobs=[], token_source="none"),
        r.step(3, response_ids=[], response_logprobs=[], token_source="none"),
        r.step(4, response_logprobs=[-1.0]),
        r.completed(),
    )
    bench.wait(3_000)
    report = bench.sealed()[0].integrity
    assert report.missing_bases == [lost.step_id]
    assert (report.steps_not_ok, report.steps_without_ids, report.steps_misaligned) == (1, 1, 1)
    assert not report.clean


def test_a_changed_history_is_seen_as_rewritten(bench: Bench) -> None:
    r = Rollout("t", "p")
    first, second = r.steps(2)
    cut = msgspec.structs.replace(second.prompt, keep_tokens=2)
    bench.feed(r.registered(), first, msgspec.structs.replace(second, prompt=cut), r.completed())
    bench.wait(3_000)
    assert [entry.relation for entry in bench.sealed()[0].steps] == ["root", "rewritten"]


def test_a_trajectory_too_large_for_its_topic_resolves_its_group_and_loses_nothing() -> None:
    bench = Bench(rules(max_sealed_bytes=3_000))
    r = Rollout("t", "p", rollouts=1)
    bench.feed(*r.whole(4))
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert (sealed.steps, sealed.outcome, sealed.seal_reason) == ([], "errored", "max_bytes")
    assert sealed.integrity.omitted_steps == 4
    assert bench.reasons() == ["trajectory_too_large"] * 4
    assert read(TRAJECTORY_EVENTS, (record for _, record in bench.letters())) == r.steps(4)


def test_a_limit_of_steps_seals_at_once() -> None:
    bench = Bench(rules(max_steps=2))
    r = Rollout("t", "p")
    bench.feed(r.registered(), *r.steps(3))
    [sealed] = bench.sealed()
    assert (len(sealed.steps), sealed.seal_reason, sealed.outcome) == (2, "max_steps", "errored")
    assert bench.reasons() == ["step_after_seal"]


def test_state_leaves_the_table_when_its_memory_is_over(bench: Bench) -> None:
    bench.feed(*Rollout("t", "p").whole())
    bench.wait(3_000)
    assert ("trajectory", "t") in bench.pipeline.stored()["trajectory"]
    assert not any(key[0] == "step" for key in bench.pipeline.stored()["trajectory"])
    bench.feed(Rollout("u", "p").registered())
    for turn in range(5):
        bench.wait(15_000)
        bench.feed(Rollout("u", "p", start_ms=bench.now_ms).step(turn))
    assert ("trajectory", "t") not in bench.pipeline.stored()["trajectory"]


def test_unreadable_records_are_dead_lettered_and_the_rest_goes_on(bench: Bench) -> None:
    for value in (b"{not json", b"", b'{"type":"unheard_of"}', b"\xff\xfe"):
        bench.log.append(OutRecord(topic=TRAJECTORY_EVENTS.name, key=b"p", value=value))
    bench.feed(*Rollout("t", "p").whole())
    bench.wait(3_000)
    assert bench.reasons() == ["malformed", "empty", "malformed", "malformed"]
    assert bench.letters()[0][1].value == b"{not json"
    assert len(bench.sealed()) == 1


def rules(**changes: int) -> Rules:
    values = {"grace_ms": RULES.seal.grace_ms, "idle_timeout_ms": RULES.seal.idle_timeout_ms} | changes
    return limits(**values)


def test_sealed_steps_are_counted_by_class_and_run(bench: Bench) -> None:
    counted = counter("processor_sealed_steps", "run", "relation")
    r = Rollout("t", "p", run_id="counted")
    bench.feed(*r.whole(3))
    bench.wait(3_000)
    [sealed] = bench.sealed()
    assert sealed.trained_branch is not None
    assert sealed.trained_branch.tip_step_id == sealed.steps[-1].step.step_id
    assert counted.labels("counted", "root")._value.get() == 1
    assert counted.labels("counted", "extends")._value.get() == 2
