"""Moments as people type them."""

from __future__ import annotations

import datetime
import re

from agentworld.contract.errors import InvalidInput

_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def unix_ms(text: str, *, now: datetime.datetime, option: str = "--since") -> int:
    """A duration before `now`, or an ISO time, as Unix ms. Raises `InvalidInput`."""
    duration = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if duration:
        return int(now.timestamp() * 1000) - int(duration[1]) * _UNIT_S[duration[2]] * 1000
    try:
        moment = datetime.datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(
            f"{option} {text!r} is neither a duration (90s, 15m, 2h, 3d, 1w) nor an ISO time "
            "(2026-11-30T21:00, UTC where no offset is given)",
            code="bad_since",
        ) from exc
