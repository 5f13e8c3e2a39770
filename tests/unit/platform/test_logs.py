"""Logs that stay readable while something is away."""

from __future__ import annotations

import logging

from agentworld.platform.logs import OnceIn


def _record(message: str, *args: object, at_s: float, name: str = "aiokafka") -> logging.LogRecord:
    record = logging.LogRecord(name, logging.ERROR, __file__, 1, message, args, None)
    record.created = at_s
    return record


def test_one_record_of_a_kind_passes_and_the_next_says_how_many_did_not() -> None:
    once = OnceIn(5.0)
    assert once.filter(_record("cannot connect to %d", 1, at_s=100.0))
    assert not once.filter(_record("cannot connect to %d", 2, at_s=101.0))
    assert not once.filter(_record("cannot connect to %d", 3, at_s=104.9))
    later = _record("cannot connect to %d", 4, at_s=105.0)
    assert once.filter(later)
    assert later.getMessage() == "cannot connect to 4 (and 2 more like it)"


def test_other_messages_and_loggers_are_not_held_back() -> None:
    once = OnceIn(5.0)
    assert once.filter(_record("cannot connect", at_s=1.0))
    assert once.filter(_record("cannot fetch", at_s=1.0))
    assert once.filter(_record("cannot connect", at_s=1.0, name="urllib3.connectionpool"))
