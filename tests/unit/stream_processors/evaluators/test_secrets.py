"""An API key is in no event, no dead letter and no log line, whatever an endpoint does with it."""

from __future__ import annotations

import logging

import pytest

from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from stream_processors.evaluators.answers import SOURCE
from tests.support.evaluated import finished
from tests.support.evaluators_at_work import evaluating, until
from tests.support.judge import ScriptedJudge, echoes_the_key, says, says_the_key
from tests.support.serving import serving

KEY = "sk-proj-0123456789abcdef"


async def test_a_key_is_in_no_event_and_no_log_line(
    memory_log: InMemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plays = [echoes_the_key(code) for code in (401, 429, 500, 200)]
    judge = ScriptedJudge([*plays, says(KEY), says_the_key()])
    for index in range(6):
        memory_log.append(OutRecord.of(TRAJECTORIES, finished(f"t-{index}", prompt_id=f"p-{index}")))
    async with serving(judge.app) as url:
        rules = f"""
[[default.evaluator]]
kind = "judge"
url = "{url}"
model = "m"
rubric = "Rate {{{{answer}}}}"
api_key_env = "JUDGE_KEY"
tries = 1
concurrency = 1
reject_below = 1
"""
        reader = memory_log.reader([TRAJECTORIES], group=SOURCE)
        async with evaluating(rules, reader, memory_log.publisher(), environment={"JUDGE_KEY": KEY}):
            await until(lambda: sum(memory_log._committed.values()) == 6, "all committed")
    assert judge.keys == [f"Bearer {KEY}"] * 6
    names = ("trajectory-events", "trajectories-dlq")
    written = [record for name in names for record in memory_log.records(name)]
    assert len(written) == 5 + 2
    everything = repr([(record.key, record.value, record.headers) for record in written]) + caplog.text
    assert KEY not in everything
    assert everything.count("***") >= 3
