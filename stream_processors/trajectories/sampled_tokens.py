"""How many tokens open trajectories have sampled, where a run limits that."""

from __future__ import annotations

from collections.abc import Mapping

from stream_processors.trajectories.seal import decode_step
from stream_processors.trajectories.state import StoredStep


class SampledTokens:
    """Counts each stored step once; after a restart it is counted from the stored steps again."""

    def __init__(self) -> None:
        self._counted: dict[str, dict[str, int]] = {}

    def of(self, trajectory_id: str, steps: Mapping[str, StoredStep]) -> int:
        """Sampled tokens of all `steps`."""
        counted = self._counted.setdefault(trajectory_id, {})
        for step_id in steps.keys() - counted.keys():
            counted[step_id] = len(decode_step(steps[step_id]).response_ids)
        return sum(counted.values())

    def forget(self, trajectory_id: str) -> None:
        """The trajectory is sealed, or some of its steps were taken away."""
        self._counted.pop(trajectory_id, None)
