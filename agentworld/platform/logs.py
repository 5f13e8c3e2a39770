"""One line per log record on standard error, with time, level and logger; JSON where asked."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import time


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
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(os.environ.get("AGENTWORLD_LOG_LEVEL", "INFO").upper())
