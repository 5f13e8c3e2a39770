"""Attempts that a client made again: the answer it went on from counts, the others are superseded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from stream_processors.trajectories.turns import Link, Turn


def superseded_steps(turns: Sequence[Turn], links: Mapping[str, Link]) -> set[str]:
    """Ids of the steps that were asked again and whose answer no later prompt holds."""
    used = {link.parent for link in links.values()}
    attempts: dict[object, list[Turn]] = defaultdict(list)
    for turn in turns:
        attempts[_asked(turn)].append(turn)
    found = set()
    for same in attempts.values():
        counts = _that_count(same, used)
        found |= {
            turn.step.step_id
            for turn in same
            if turn not in counts and any(_is_retry(turn, kept) for kept in counts)
        }
    return found


def _asked(turn: Turn) -> object:
    """Equal for attempts at one prompt; the choices of one request are no attempts at one another."""
    if turn.messages:
        return turn.step.choice_index, turn.messages, turn.tools
    return turn.step.choice_index, turn.step.prompt.digest, turn.step.request.fingerprint


def _that_count(attempts: Sequence[Turn], used: set[str | None]) -> list[Turn]:
    """The attempts the conversation goes on from; where it ends here, the last good one, else the last."""
    went_on = [turn for turn in attempts if turn.step.step_id in used]
    good = [turn for turn in attempts if turn.step.status == "ok"]
    return went_on or (good or list(attempts))[-1:]


def _is_retry(turn: Turn, kept: Turn) -> bool:
    """Same body, a failed attempt, or a client that counts its attempts.

    Equal prompts alone are none: a client may sample one twice, with other parameters.
    """
    same_body = turn.step.request.fingerprint == kept.step.request.fingerprint != ""
    counted = (turn.step.request.retry_count or 0) + (kept.step.request.retry_count or 0) > 0
    return same_body or counted or turn.step.status != "ok"
