"""Every protocol over a real vLLM where `AGENTWORLD_E2E_VLLM=1`; the same calls over a stand-in, always."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from agentworld.contract.delta import Prompt, expand
from agentworld.platform.reports import print_table, write_report
from agentworld.platform.settings import KafkaSettings
from tests.e2e.vllm.calls import Row, judge
from tests.e2e.vllm.running import run_all
from tests.e2e.vllm.server import vllm_server
from tests.e2e.vllm.tap import Tap, Told
from tests.e2e.vllm.turns import run_conversations
from tests.support.builders import captured
from tests.unit.gateway.streams.stand_in import standing_in

pytestmark = pytest.mark.e2e

COLUMNS = ["protocol", "what", "stream", "steps", "ids", "logprobs", "prompt", "first delta", "passed"]


def show(title: str, rows: Sequence[Row]) -> None:
    cells = [
        [
            *(row.protocol, row.what, row.stream, row.steps, row.ids_exact, row.logprobs_exact),
            *(row.prompt_rendered, row.first_delta_first, row.passed),
        ]
        for row in rows
    ]
    print_table(title, COLUMNS, cells)
    for row in rows:
        for problem in row.problems:
            print(f"{row.protocol}, {row.what}: {problem}")


REAL = pytest.mark.skipif(
    os.environ.get("AGENTWORLD_E2E_VLLM") != "1",
    reason="set AGENTWORLD_E2E_VLLM=1 to run against a real vLLM (docs/vllm.md)",
)


@pytest.fixture(scope="module")
def real_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with vllm_server(tmp_path_factory.mktemp("vllm")) as url:
        yield url


@REAL
@pytest.mark.timeout(1800)
async def test_steps_over_a_real_vllm_are_what_it_sampled(
    real_vllm: str, embedded_kafka: KafkaSettings, tmp_path: Path
) -> None:
    rows = await run_all(real_vllm, embedded_kafka, tmp_path)
    show("vLLM", rows)
    write_report("test-vllm", {"rows": [asdict(row) | {"passed": row.passed} for row in rows]})
    assert all(row.passed for row in rows)


@REAL
@pytest.mark.timeout(1800)
async def test_prompts_given_to_a_real_vllm_as_ids_begin_with_all_that_was_sampled(
    real_vllm: str, embedded_kafka: KafkaSettings, tmp_path: Path
) -> None:
    turns = await run_conversations(real_vllm, embedded_kafka, tmp_path)
    assert all(turn.honest for turn in turns), turns
    # The text of random ids is seldom tokenized to them again: without the ids these would not be exact.
    assert any(turn.continued and turn.drifted for turn in turns), turns


@pytest.mark.timeout(300)
async def test_the_same_calls_pass_over_a_stand_in(embedded_kafka: KafkaSettings, tmp_path: Path) -> None:
    async with standing_in() as url:
        rows = await run_all(url, embedded_kafka, tmp_path)
    show("Stand-in", rows)
    assert all(row.passed for row in rows)


@pytest.mark.parametrize(
    ("ids", "logprobs", "prompt", "passed"),
    [
        ([1], [-0.25], [7], True),
        ([2], [-0.25], [7], False),
        ([1, 2], [-0.25, -0.5], [7], False),
        ([1], [-0.5], [7], False),
        ([1], [-0.25], [8], False),
        ([], [], [7], False),
    ],
)
async def test_only_a_step_of_what_was_sampled_passes_its_row(
    ids: list[int], logprobs: list[float], prompt: list[int], *, passed: bool
) -> None:
    step = captured("t1", turn=0, prompt=Prompt(ids=[7], messages=[], tools=None), response_ids=[1])
    choice = {"index": 0, "token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
    told = Told({}, [{"choices": [choice], "prompt_token_ids": prompt}])
    row = Row("completions", "ids", stream=False)
    await judge(row, told, [step], expand([step]), Tap(""))
    assert row.passed is passed
