"""What the scripted engine can be asked to do with a call, and how its step must then be captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentworld.contract.events.trajectory_events import StepStatus
from tests.support.engine.tokens import text_of


@dataclass(frozen=True, slots=True)
class Play:
    """One way to answer."""

    name: str
    ends: StepStatus
    """Status of the step."""
    only: Literal["", "stream", "whole"] = ""
    """Where it makes sense; empty: streamed and not."""

    def suits(self, *, stream: bool) -> bool:
        """Whether it can be played so."""
        return self.only in {"", "stream" if stream else "whole"}


ANSWER = Play("answer", "ok")
CUT = Play("cut", "failed")
"""The connection drops after some tokens, or in the middle of the body."""
CUT_BEFORE = Play("cut-before", "failed")
"""The connection drops before anything was answered."""
EARLY_END = Play("early-end", "failed", only="stream")
"""The stream ends in good order, before the finish reason."""
STATUS_429 = Play("status-429", "failed")
STATUS_500 = Play("status-500", "failed")
PAGE_500 = Play("page-500", "failed")
"""Status 500 with an HTML page."""
ERROR_INSIDE = Play("error-inside", "failed")
"""Status 200, and an error object in the place of a completion or of a chunk."""
SILENT = Play("silent", "timed_out")
"""Not even headers."""
STALLED = Play("stalled", "timed_out")
"""Headers and some tokens, or half the body, then nothing."""
PAGE_200 = Play("page-200", "malformed")
"""Status 200 with an HTML page."""
GARBAGE = Play("garbage", "malformed")
"""Broken JSON: the body, or a chunk after some good ones."""
NO_CHOICES = Play("no-choices", "malformed", only="whole")
LINGER = Play("linger", "cancelled")
"""Samples on until it is cancelled."""

PLAYS = {
    play.name: play
    for play in (
        *(ANSWER, CUT, CUT_BEFORE, EARLY_END, STATUS_429, STATUS_500, PAGE_500, ERROR_INSIDE),
        *(SILENT, STALLED, PAGE_200, GARBAGE, NO_CHOICES, LINGER),
    )
}


def told(mark: str, play: Play) -> str:
    """The user message of the call `mark` that asks for `play`."""
    return f"{mark} {play.name} – 你好 ✓"


def asked(messages: Sequence[dict[str, Any]]) -> tuple[str, Play]:
    """Mark and play in the last message of a chat completions request."""
    mark, name, *_ = text_of(messages[-1].get("content")).split(" ")
    return mark, PLAYS[name]
