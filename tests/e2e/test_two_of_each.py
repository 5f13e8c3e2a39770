"""Two gateways behind a load balancer and two processor workers give what one of each gives."""

from __future__ import annotations

import pytest

from recipes.quickstart import evidence
from recipes.quickstart.rollouts import Plan, run
from tests.support.quickstart import settled_verdict, stack_with_engine
from tests.support.round_robin import round_robin

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

TASKS, ROLLOUTS, SEED = 6, 4, 11


def outcome(root, **counts):
    """What a run comes to, in terms that do not depend on ids: rewards and lengths by prompt."""
    with (
        stack_with_engine(root, **counts) as (stack, engine),
        round_robin(stack.gateway_urls) as url,
    ):
        summary = run(
            Plan(gateway_url=url, run_id="same", tasks=TASKS, rollouts=ROLLOUTS, seed=SEED, concurrency=6)
        )
        verdict = settled_verdict(
            stack, engine, run_id="same", answered_ids=summary.answered_ids, groups=TASKS
        )
        assert verdict.problems == []
        seen = sorted((r.prompt_id, r.rollout_index, r.ending, r.reward, r.turns) for r in summary.results)
        decided = sorted(
            (
                event.prompt_id,
                type(event).__name__,
                event.rollouts,
                sorted(
                    (m.outcome, m.reward or 0.0, m.steps, m.prompt_tokens, m.response_tokens)
                    for m in event.members
                ),
            )
            for event in evidence.decisions_in_log(stack.kafka, "same").values()
        )
        return seen, decided


def test_two_gateways_and_two_workers_come_to_the_same_result(tmp_path):
    one = outcome(tmp_path / "one")
    two = outcome(tmp_path / "two", gateways=2, processors=2)
    assert len(one[1]) == TASKS
    assert two == one
