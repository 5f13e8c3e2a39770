"""One line per log record on standard error, with time, level and logger; JSON where asked."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import time

_CHATTY = ("aiokafka", "urllib3.connectionpool", "clickhouse_connect.driver._backend.http_sync")
_CHATTY_INTERVAL_S = 5.0
_MAX_KINDS = 1_000


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class OnceIn(logging.Filter):
    """Lets one record of a kind pass in `interval_s`; the next one says how many were left out.

    A kind is a logger with a message template. For libraries that log each attempt to reach a broker
    that is away.
    """

    def __init__(self, interval_s: float) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._last: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        kind = record.name, record.msg
        passed_at, left_out = self._last.get(kind, (float("-inf"), 0))
        if record.created - passed_at < self._interval_s:
            self._last[kind] = passed_at, left_out + 1
            return False
        if len(self._last) >= _MAX_KINDS:
            self._last.clear()
        self._last[kind] = record.created, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like it)", ()
        return True


def configure_logging(service: str) -> None:
    """Set up the root logger. `AGENTWORLD_LOG_LEVEL` and `AGENTWORLD_LOG_FORMAT` (text, json).

    A crash in a native library leaves the Python stacks of all threads on standard error.
    """
    faulthandler.enable()
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get("AGENTWORLD_LOG_FORMAT", "text") == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(
            logging.Formatter(f"%(asctime)s %(levelname)-7s {service} %(name)s: %(message)s")
        )
    chatty = OnceIn(_CHATTY_INTERVAL_S)
    handler.addFilter(lambda record: not record.name.startswith(_CHATTY) or chatty.filter(record))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(os.environ.get("AGENTWORLD_LOG_LEVEL", "INFO").upper())
