"""Functions that plugin evaluators name."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from agentworld.platform.resolved import ResolvedTrajectory

NOT_A_FUNCTION = 7


def steps(trajectory: ResolvedTrajectory) -> float:
    return float(len(trajectory.steps))


async def prompt_tokens(trajectory: ResolvedTrajectory) -> float:
    await asyncio.sleep(0)
    return len(trajectory.steps[-1].prompt_ids)


def everything(trajectory: ResolvedTrajectory) -> dict[str, Any]:
    return {
        "reward": 0.5,
        "rewards": {"format": 1, "length": -0.25},
        "verdict": "hold",
        "reason": f"of {trajectory.trajectory_id}",
        "extra": {"seen": [1, 2]},
    }


def verdict_alone(trajectory: ResolvedTrajectory) -> dict[str, Any]:
    return {"verdict": "reject"}


def broken(trajectory: ResolvedTrajectory) -> float:
    raise KeyError("metadata")


def hangs(trajectory: ResolvedTrajectory) -> float:
    time.sleep(1)
    return 1.0


async def never_answers(trajectory: ResolvedTrajectory) -> float:
    await asyncio.sleep(3600)
    return 1.0
