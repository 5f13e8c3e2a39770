"""Steps in order: by request start, but never before the step whose response they hold."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from stream_processors.trajectories.turns import Link, Turn


def in_causal_order(turns: Sequence[Turn], links: Mapping[str, Link]) -> list[Turn]:
    """Clocks of several gateways may disagree; what a prompt holds cannot."""
    waiting: dict[str, list[Turn]] = defaultdict(list)
    ready: list[tuple[tuple[int, str], Turn]] = []
    for turn in turns:
        link = links.get(turn.step.step_id)
        if link is not None and link.parent is not None:
            waiting[link.parent].append(turn)
        else:
            ready.append((turn.started, turn))
    heapq.heapify(ready)
    ordered: list[Turn] = []
    while ready:
        _, turn = heapq.heappop(ready)
        ordered.append(turn)
        for child in waiting.pop(turn.step.step_id, ()):
            heapq.heappush(ready, (child.started, child))
    # Two prompts cannot hold each other's responses, but captured data could claim so.
    rest = [turn for children in waiting.values() for turn in children]
    return ordered + sorted(rest, key=lambda turn: turn.started)
