"""Evaluations whose answer stands in the log already, so that nobody pays for them twice."""

from __future__ import annotations

from agentworld.contract.events import Reward, TrajectoryRevised
from stream_processors.evaluators.kinds import Evaluator, Plugin, config_digest, evaluator_name

_Evaluation = tuple[str, str, str]


class Standing:
    """The newest `capacity` of them.

    After a crash, what was published and not committed is read again. The reward has become a
    `TrajectoryRevised` by then, a little further on in the same partition.
    """

    def __init__(self, capacity: int = 50_000) -> None:
        self._capacity = capacity
        self._known: dict[_Evaluation, None] = {}
        self._read: dict[_Evaluation, None] = {}

    def published(self, evaluator: Evaluator, trajectory_id: str) -> None:
        """All events of the evaluation are acknowledged."""
        self._keep(self._known, (evaluator_name(evaluator), config_digest(evaluator), trajectory_id))

    def read(self, revised: TrajectoryRevised) -> None:
        """Take note of the rewards that a trajectory has."""
        for reward in revised.rewards:
            if digest := _digest(reward):
                self._keep(self._read, (reward.given_by, digest, revised.trajectory_id))

    def stands(self, evaluator: Evaluator, trajectory_id: str) -> bool:
        """Whether the whole answer is known to stand."""
        evaluation = evaluator_name(evaluator), config_digest(evaluator), trajectory_id
        # One reward in the log says nothing of a plugin's others.
        return evaluation in self._known or (evaluation in self._read and not isinstance(evaluator, Plugin))

    def _keep(self, kept: dict[_Evaluation, None], evaluation: _Evaluation) -> None:
        kept[evaluation] = None
        if len(kept) > self._capacity:
            del kept[next(iter(kept))]


def _digest(reward: Reward) -> str:
    return str(reward.extra.get("config_digest") or "")
