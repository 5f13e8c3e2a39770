"""Which of a trajectory's named rewards trains."""

from __future__ import annotations

from collections.abc import Iterable

from agentworld.contract.events import Outcome, Reward, RewardAssigned
from stream_processors.rules import UNFINISHED, RewardRules


def training_reward(
    rewards: Iterable[RewardAssigned | Reward], rules: RewardRules, outcome: Outcome
) -> float | None:
    """The reward of the first name in `rules.names` that the trajectory has.

    The trajectory's own reward of that name counts, else the sum over its steps'. Where it has none
    of them: `rules.unfinished` for an abandoned or errored rollout, None for any other.
    """
    given = list(rewards)
    for name in rules.names:
        named = sorted((reward for reward in given if reward.name == name), key=lambda r: r.step_id or "")
        of_trajectory = [reward.value for reward in named if reward.step_id is None]
        if of_trajectory:
            return of_trajectory[0]
        if named:
            return sum(reward.value for reward in named)
    return rules.unfinished if outcome in UNFINISHED else None
