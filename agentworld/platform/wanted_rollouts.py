"""Which rollouts of a run are wanted again: what a recipe's runner follows while it works."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from agentworld.contract.codec import decode
from agentworld.contract.errors import MalformedEvent
from agentworld.contract.events import RolloutWanted
from agentworld.contract.topics import GROUPS
from agentworld.platform.log import LogReader


def wanted_rollouts(
    reader: LogReader, run_id: str, *, stop: threading.Event, timeout_s: float = 0.5
) -> Iterator[RolloutWanted]:
    """Replacements that the run's groups ask for, each once, until `stop` is set.

    `reader` reads `groups`. Register the replacement with `replaces_trajectory_id`. Nothing is committed:
    a runner that starts again hears of all of them, and asks itself which it has run.
    """
    heard: set[str] = set()
    while not stop.is_set():
        for record in reader.poll(timeout_s=timeout_s):
            if dict(record.headers).get("type") != b"rollout_wanted":
                continue
            try:
                event = decode(GROUPS, record.value)
            except MalformedEvent:
                continue
            if isinstance(event, RolloutWanted) and event.run_id == run_id and event.event_id not in heard:
                heard.add(event.event_id)
                yield event
