"""From sealed trajectories to rewards, verdicts and dead letters, on the in-memory log."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from agentworld.contract.codec import decode
from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Event, Reward, RewardAssigned, TrajectoryRevised, VerdictGiven
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import REPLAY_OF, OutRecord
from agentworld.platform.memory import InMemoryLog
from stream_processors.evaluators.answers import FAILED, SOURCE, events_of
from stream_processors.evaluators.evaluation import Evaluation
from stream_processors.evaluators.kinds import config_digest
from stream_processors.groups.verdicts import counting, with_verdict
from tests.support.evaluated import finished, judge_table, table
from tests.support.evaluators_at_work import evaluating, until
from tests.support.judge import ScriptedJudge, says, score, slow, status
from tests.support.serving import serving

EXACT = """
[[default.evaluator]]
kind = "exact_match"
extract = "number"
compare = "number"
reward = "reward"
reject_below = 0.5
"""


def judge_rules(url: str, more: str = "") -> str:
    return f"""
[[default.evaluator]]
kind = "judge"
url = "{url}"
model = "judge-7b"
rubric = "Rate {{{{answer}}}}"
retry_ms = 1
tries = 2
{more}
"""


def seal(log: InMemoryLog, *trajectories: Any) -> None:
    for sealed in trajectories:
        log.append(OutRecord.of(TRAJECTORIES, sealed))


def given(log: InMemoryLog) -> list[Event]:
    return [decode(TRAJECTORY_EVENTS, record.value) for record in log.records(TRAJECTORY_EVENTS.name)]


def rewards(log: InMemoryLog) -> dict[str, float]:
    return {e.trajectory_id: e.value for e in given(log) if isinstance(e, RewardAssigned)}


def letters(log: InMemoryLog) -> list[dict[str, str]]:
    return [
        {name: value.decode() for name, value in record.headers} for record in log.records("trajectories-dlq")
    ]


def work(log: InMemoryLog, rules: str, **settings: Any) -> Any:
    return evaluating(rules, log.reader([TRAJECTORIES], group=SOURCE), log.publisher(), **settings)


def committed(log: InMemoryLog) -> int:
    return sum(log._committed.values())


async def test_each_trajectory_gets_its_reward_and_the_worse_one_a_verdict(memory_log: InMemoryLog) -> None:
    seal(memory_log, finished("right", "It is 42."), finished("wrong", "It is 7.", prompt_id="task-2"))
    async with work(memory_log, EXACT):
        await until(lambda: committed(memory_log) == 2, "both committed")
    assert rewards(memory_log) == {"right": 1.0, "wrong": 0.0}
    [verdict] = [event for event in given(memory_log) if isinstance(event, VerdictGiven)]
    assert (verdict.trajectory_id, verdict.decision, verdict.given_by_kind) == (
        "wrong",
        "reject",
        "evaluator",
    )
    assert verdict.value == {"reject_below": 0.5, "trajectory_id": "wrong", "reward": 0.0}
    [reward] = [e for e in given(memory_log) if isinstance(e, RewardAssigned) and e.trajectory_id == "right"]
    assert (reward.name, reward.version, reward.given_by) == ("reward", 1, "exact_match")
    assert reward.extra["reason"] == "the answer matches"


async def test_a_redelivery_repeats_equal_events(memory_log: InMemoryLog) -> None:
    seal(memory_log, finished("right"))
    for number in (1, 2):
        reader = memory_log.reader([TRAJECTORIES], group=f"group-{number}")
        async with evaluating(EXACT, reader, memory_log.publisher()):
            await until(lambda: committed(memory_log) == number, "committed")  # noqa: B023
    first, second = memory_log.records(TRAJECTORY_EVENTS.name)
    assert first.value == second.value


async def test_what_is_not_asked_for_is_passed_over(memory_log: InMemoryLog) -> None:
    memory_log.append(
        msgspec_record(finished("replayed"), (REPLAY_OF, b"run-0")),
    )
    seal(memory_log, finished("gone", outcome="abandoned"), finished("val", channel="val"))
    rules = EXACT + '\n[[run]]\nmatch = "*"\nchannel = "val"\nevaluator = []\n'
    async with work(memory_log, rules):
        await until(lambda: committed(memory_log) == 3, "all committed")
    assert (given(memory_log), letters(memory_log)) == ([], [])


def msgspec_record(sealed: Any, *headers: tuple[str, bytes]) -> OutRecord:
    record = OutRecord.of(TRAJECTORIES, sealed)
    return OutRecord(topic=record.topic, key=record.key, value=record.value, headers=record.headers + headers)


async def test_a_failure_is_a_dead_letter_and_the_others_go_on(memory_log: InMemoryLog) -> None:
    seal(memory_log, finished("no-truth", metadata={}), finished("right"))
    memory_log.append(OutRecord(topic="trajectories", key=b"x", value=b"{broken"))
    rules = EXACT + '[[default.evaluator]]\nkind = "plugin"\nfunction = "tests.support.plugins:broken"\n'
    async with work(memory_log, rules):
        await until(lambda: committed(memory_log) == 3, "all committed")
    assert rewards(memory_log) == {"right": 1.0}
    found = sorted(
        (each["dlq-reason"], each.get(FAILED, ""), each["dlq-detail"]) for each in letters(memory_log)
    )
    assert found[:3] == [
        (
            "evaluation_failed",
            "exact_match",
            "exact_match: the registration's metadata has nothing at reward_model.ground_truth",
        ),
        ("evaluation_failed", "plugin", "plugin: tests.support.plugins:broken raised KeyError: 'metadata'"),
        ("evaluation_failed", "plugin", "plugin: tests.support.plugins:broken raised KeyError: 'metadata'"),
    ]
    assert found[3][0] == "malformed"


async def test_a_replayed_letter_asks_the_one_that_failed_and_no_other(memory_log: InMemoryLog) -> None:
    judge = ScriptedJudge([status(400, "no")])
    async with serving(judge.app) as url:
        rules = EXACT + judge_rules(url)
        seal(memory_log, finished("right"))
        async with work(memory_log, rules):
            await until(lambda: committed(memory_log) == 1, "committed")
        [letter] = memory_log.records("trajectories-dlq")
        headers = tuple((n, v) for n, v in letter.headers if not n.startswith("dlq-"))
        memory_log.append(
            OutRecord(topic="trajectories", key=letter.key, value=letter.value or b"", headers=headers)
        )
        async with work(memory_log, rules):
            await until(lambda: committed(memory_log) == 2, "committed")
    named = [(e.given_by, e.value) for e in given(memory_log) if isinstance(e, RewardAssigned)]
    assert named == [("exact_match", 1.0), ("judge", 0.75)]


async def test_nothing_is_committed_past_a_trajectory_under_way(memory_log: InMemoryLog) -> None:
    single = InMemoryLog(partitions=1)
    gate = asyncio.Event()
    judge = ScriptedJudge()

    async def first_waits(request: Any) -> Any:
        if "slowest" in (await request.json())["messages"][0]["content"]:
            await gate.wait()
        return await says(score(1))(request)

    judge.otherwise = first_waits
    seal(
        single,
        finished("a", "fine"),
        finished("b", "the slowest"),
        finished("c", "good"),
        finished("d", "well"),
    )
    async with serving(judge.app) as url, work(single, judge_rules(url)):
        await until(lambda: len(rewards(single)) == 3, "three rewards")
        await asyncio.sleep(0.3)
        assert committed(single) == 1
        gate.set()
        await until(lambda: committed(single) == 4, "all committed")
    assert set(rewards(single)) == {"a", "b", "c", "d"}


async def test_only_so_many_are_open_at_a_time(memory_log: InMemoryLog) -> None:
    judge = ScriptedJudge(otherwise=slow(0.05, says(score(1))))
    seal(memory_log, *(finished(f"t-{index}", prompt_id=f"p-{index}") for index in range(12)))
    async with serving(judge.app) as url, work(memory_log, judge_rules(url), max_open=3):
        await until(lambda: committed(memory_log) == 12, "all committed")
    assert judge.most_open == 3
    assert len(rewards(memory_log)) == 12


async def test_a_stop_lets_what_is_under_way_end_and_leaves_the_rest(memory_log: InMemoryLog) -> None:
    single = InMemoryLog(partitions=1)
    judge = ScriptedJudge([slow(0.2, says(score(1))), slow(3600, says(score(1)))])
    seal(single, finished("short"), finished("long"))
    async with serving(judge.app) as url:
        async with work(single, judge_rules(url), drain_ms=1500):
            await until(lambda: judge.open == 2, "both under way")
        assert committed(single) == 1
        async with work(single, judge_rules(url)):
            await until(lambda: committed(single) == 2, "the rest committed")
    assert sorted(rewards(single)) == ["long", "short"]


async def test_a_budget_that_is_spent_is_said_in_the_log(memory_log: InMemoryLog) -> None:
    judge = ScriptedJudge()
    seal(memory_log, *(finished(f"t-{index}", prompt_id=f"p-{index}") for index in range(5)))
    async with serving(judge.app) as url, work(memory_log, judge_rules(url, "max_calls = 2")):
        await until(lambda: committed(memory_log) == 5, "all committed")
    assert len(judge.requests) == len(rewards(memory_log)) == 2
    assert [each["dlq-reason"] for each in letters(memory_log)] == ["evaluation_budget_spent"] * 3
    assert "2 of 2 calls" in letters(memory_log)[0]["dlq-detail"]


async def test_an_answer_that_stands_is_not_paid_for_again(memory_log: InMemoryLog) -> None:
    """As after a crash between the acknowledgement and the commit, once the reward has come through."""
    judge = ScriptedJudge()
    single = InMemoryLog(partitions=1)
    async with serving(judge.app) as url:
        text = judge_rules(url)
        digest = config_digest(judge_table(url, rubric="Rate {{answer}}", tries=2))
        answered, other = finished("answered"), finished("other")
        seal(single, answered, other)
        reward = Reward(
            name="judge",
            value=0.5,
            step_id=None,
            version=1,
            given_by="judge",
            extra={"config_digest": digest},
        )
        single.append(OutRecord.of(TRAJECTORIES, revision(answered, reward)))
        async with work(single, text):
            await until(lambda: committed(single) == 3, "all committed")
    assert list(rewards(single)) == ["other"]
    assert len(judge.requests) == 1


def revision(sealed: Any, reward: Reward) -> TrajectoryRevised:
    return TrajectoryRevised(
        event_id="0",
        event_time_ms=sealed.event_time_ms,
        source="test",
        trajectory_id=sealed.trajectory_id,
        prompt_id=sealed.prompt_id,
        group_id=sealed.group_id,
        run_id=sealed.run_id,
        channel=sealed.channel,
        rewards=[reward],
        reward=None,
        revision=1,
    )


async def test_while_the_log_is_away_nothing_is_lost_and_health_says_why(memory_log: InMemoryLog) -> None:
    judge = ScriptedJudge(otherwise=slow(0.2, says(score(1))))
    seal(memory_log, finished("t"))
    async with serving(judge.app) as url, work(memory_log, judge_rules(url), retry_max_ms=50) as service:
        await until(lambda: judge.open, "asked")
        memory_log.available = False
        await until(lambda: service.trouble, "trouble is told")
        memory_log.available = True
        await until(lambda: committed(memory_log) == 1, "committed")
        assert service.trouble == ""
    assert rewards(memory_log) == {"t": 1.0}
    assert len(judge.requests) == 1


async def test_a_reader_that_cannot_go_on_ends_the_service(memory_log: InMemoryLog) -> None:
    class Fenced:
        def poll(self, **_: Any) -> list[Any]:
            raise Unavailable("another has this instance id")

        def commit_to(self, positions: Any) -> None: ...

        def close(self) -> None: ...

    with pytest.raises(Unavailable, match="another has"):
        async with evaluating(EXACT, Fenced(), memory_log.publisher()):  # type: ignore[arg-type]
            await asyncio.sleep(0.2)


def test_of_verdicts_on_a_group_the_strictest_trajectory_counts() -> None:
    evaluator = table(kind="exact_match", reject_below=0.5, accept_from=0.5, verdict_on="group")
    verdicts: tuple[VerdictGiven, ...] = ()
    for name, reward in (("bad", 0.0), ("good", 1.0)):
        evaluation = Evaluation(rewards={"exact_match": reward})
        verdict, _ = events_of(evaluator, finished(name), evaluation)
        assert isinstance(verdict, VerdictGiven)
        assert verdict.trajectory_id is None
        verdicts = with_verdict(verdicts, verdict)
    counts = counting(verdicts)
    assert counts is not None
    assert (counts.decision, counts.given_by) == ("reject", "exact_match:bad")


def test_ids_follow_from_name_config_and_trajectory_alone() -> None:
    def ids(**fields: Any) -> list[str]:
        evaluator = table(**({"kind": "exact_match", "accept_from": 0.0} | fields))
        sealed = finished(fields.pop("trajectory", "t"))
        return [
            e.event_id for e in events_of(evaluator, sealed, Evaluation(rewards={"r": 0.3, "exact_match": 1}))
        ]

    assert ids() == ids()
    assert len(set(ids())) == 3
    assert not set(ids()) & set(ids(hit=2.0))
    other = events_of(table(kind="exact_match"), finished("u"), Evaluation(rewards={"r": 1.0}))
    assert not {e.event_id for e in other} & set(ids())
    assert msgspec.structs.asdict(other[0])["event_time_ms"] == finished("u").event_time_ms
